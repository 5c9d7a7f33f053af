"""Tables to pictures: what a person should notice, as one page and as markdown."""
