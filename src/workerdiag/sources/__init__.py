"""Sources of evidence about dead workers. Each one only reads, keeps its deadline and never raises."""
