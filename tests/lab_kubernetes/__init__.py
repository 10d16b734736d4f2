"""Real deaths of real Dask workers in a real Kubernetes cluster; README.md says how."""
