"""What a page of docs/operate/managers says: its blocks of code, with the paths, ports and names of this run in place of the page's."""

import os
import re

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "operate", "managers")
BLOCK = re.compile(r"^```([a-z]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Page:
    def __init__(self, name):
        self.name = name
        with open(os.path.join(FOLDER, f"{name}.md")) as file:
            self.blocks = BLOCK.findall(file.read())

    def block(self, language, number=0, values=None):
        """A block in a language, counted from 0. `values`: {text of the page: text of this run}; each must be in it."""
        text = [content for of, content in self.blocks if of == language][number]
        for page, here in sorted((values or {}).items(), key=lambda pair: -len(pair[0])):
            if page not in text:
                raise ValueError(f"{self.name}.md: {page} is not in {language} block {number}")
            text = text.replace(page, here)
        return text
