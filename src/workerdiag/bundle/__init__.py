"""The death bundle: one zip file with a diagnosis and the evidence it rests on (docs/death-bundle.md)."""
