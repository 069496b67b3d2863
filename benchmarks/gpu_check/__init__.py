"""`make gpu-check`: what only a GPU can show, measured section by section, as one JSON file and one Markdown table."""
