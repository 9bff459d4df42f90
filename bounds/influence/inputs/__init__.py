"""Parts of a request: functions, classes of equal rows, readings, base passes."""
