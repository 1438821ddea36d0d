"""What the effective theory predicts from a specification alone; nothing here samples."""
