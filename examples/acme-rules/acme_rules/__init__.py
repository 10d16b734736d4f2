"""Rules of ACME's own, beside this file under ``causes/``."""
