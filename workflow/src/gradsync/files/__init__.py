"""Files: how they are read and written, what is wrong with them or with their disk, what a job leaves behind."""
