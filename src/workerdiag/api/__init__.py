"""The functions that users call: `explain.explain`, and the `diagnosis.Diagnosis` that it returns."""
