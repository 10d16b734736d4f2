"""Log stores, which keep the logs of machines and containers after their end."""
