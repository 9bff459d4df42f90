"""Parts that commands share: flags, subject, devices, progress, records and reports."""
