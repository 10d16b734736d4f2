"""From findings to something a person or a program reads: text, Markdown, HTML, JSON."""
