"""Looking at a conversion before it is written: hunk by hunk in the terminal, as a page, as patches."""
