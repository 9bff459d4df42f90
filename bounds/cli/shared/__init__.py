"""What commands share: flags, their subject, devices, progress, records and reports."""
