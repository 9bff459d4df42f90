"""Running a model: checked evaluation, blocks of rows, devices, memory, compiler."""
