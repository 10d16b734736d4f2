"""Register `store` in each process with this folder on its path: workers, and the processes of suspects."""

import fsspec

fsspec.register_implementation("tallied", "store.TalliedFiles")
