"""Parts of a request for influences: functions, classes of equal rows, base passes."""
