#!/usr/bin/env python3
"""Import cycles between the modules of a crate: `cycles.py [-v] [CRATE...]`, all crates without arguments.

The nodes are the files and folders of one folder; a folder with all that is below it is one node. An edge is an import or a
path from the non-test code of one node into another, followed through `pub use`. A folder's own `mod.rs` is no node: parents
name their children and children their parents. With -v each cycle is printed with the lines that close it. Exit status 1 if
there is one.

The source is read with regular expressions, not with a compiler: macros are not expanded, and a path that does not begin with
`crate`, `super`, `self`, an imported name or a child module is taken for another crate's.
"""

import collections
import re
import sys

import workspace

RAW_STRING = re.compile(r'b?r(#*)"')
CHARACTER = re.compile(r"'(?:\\(?:x..|u\{[^}]*\}|.)|[^'\\])'")
CFG_TEST = re.compile(r"#\[cfg\((?:test|all\(test[^\]]*)\)\]")
TEST_MODULE = re.compile(r"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+);")
USE = re.compile(r"\b(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);")
ABSOLUTE = re.compile(r"\b((?:crate|super)(?:\s*::\s*\w+)+)")
RELATIVE = re.compile(r"(?<![\w:])(\w+)((?:::\w+)+)")
DEFINITION = r"\b(?:struct|enum|fn|trait|type|const|static|union|macro_rules!)\s+"


class Module:
    """One file, or the `mod.rs` or `lib.rs` of a folder."""

    def __init__(self, path, file):
        self.path = path
        self.file = file
        self.text = ""
        # Names that it imports or re-exports, and where they lead.
        self.exports = {}
        # Modules of which it imports everything.
        self.globs = []
        # What it names: (path, line).
        self.references = []

    def defines(self, name):
        return re.search(DEFINITION + re.escape(name) + r"\b", self.text) is not None


# --- reading a source ---


def blank(text):
    """As many lines, and nothing in them."""
    return re.sub(r"[^\n]", " ", text)


def without_text(source):
    """The source without comments, strings and characters; lines stay where they are."""
    out, at = [], 0
    while at < len(source):
        end = end_of_comment(source, at) or end_of_string(source, at)
        if end is None:
            out.append(source[at])
            at += 1
        else:
            out.append("\n" * source.count("\n", at, end))
            at = end
    return "".join(out)


def end_of_comment(source, at):
    if source.startswith("//", at):
        end = source.find("\n", at)
        return len(source) if end < 0 else end
    if not source.startswith("/*", at):
        return None
    depth, at = 1, at + 2
    while depth and at < len(source):
        opens, closes = source.startswith("/*", at), source.startswith("*/", at)
        depth += opens - closes
        at += 2 if opens or closes else 1
    return at


def end_of_string(source, at):
    raw = RAW_STRING.match(source, at)
    if raw and not (at and (source[at - 1].isalnum() or source[at - 1] == "_")):
        return source.find('"' + raw.group(1), raw.end()) + 1 + len(raw.group(1))
    if source[at] == '"':
        at += 1
        while source[at] != '"':
            at += 2 if source[at] == "\\" else 1
        return at + 1
    character = CHARACTER.match(source, at) if source[at] == "'" else None
    return character.end() if character else None


def end_of_block(source, at):
    depth = 0
    for at in range(at, len(source)):
        depth += (source[at] == "{") - (source[at] == "}")
        if depth == 0:
            return at + 1
    return len(source)


def without_tests(source):
    """Blanks what `#[cfg(test)]` covers."""
    while found := CFG_TEST.search(source):
        brace, semicolon = source.find("{", found.end()), source.find(";", found.end())
        is_line = semicolon >= 0 and (brace < 0 or semicolon < brace)
        end = semicolon + 1 if is_line else end_of_block(source, brace)
        source = source[: found.start()] + blank(source[found.start() : end]) + source[end:]
    return source


def expand(tree, prefix=()):
    """`a::{b, c::d as e}` as pairs of a path and the name that it gets."""
    tree = tree.strip()
    group = re.match(r"([^{]*)\{(.*)\}$", tree, re.S)
    if group:
        base = prefix + split(group.group(1))
        for part in parts(group.group(2)):
            yield from expand(part, base)
        return
    alias = re.match(r"(.*)\s+as\s+(\w+)$", tree, re.S)
    path = prefix + split(alias.group(1) if alias else tree)
    if path and path[-1] == "self":
        path = path[:-1]
    if path:
        yield path, alias.group(2) if alias else path[-1]


def split(path):
    return tuple(part.strip() for part in path.split("::") if part.strip())


def parts(group):
    """What stands between the commas of a group, groups within it left whole."""
    depth, part = 0, ""
    for character in group + ",":
        depth += (character == "{") - (character == "}")
        if character == "," and depth == 0:
            if part.strip():
                yield part
            part = ""
        else:
            part += character


# --- a crate's modules ---


def load(src):
    """The modules of a crate by path, tests left out."""
    modules, tests = {}, set()
    for file in sorted(src.rglob("*.rs")):
        parts_of_name = file.relative_to(src).with_suffix("").parts
        is_test = "tests" in parts_of_name or parts_of_name[-1].endswith("_tests")
        if parts_of_name == ("main",) or is_test or parts_of_name[0] == "bin":
            continue
        path = parts_of_name[:-1] if parts_of_name[-1] in ("mod", "lib") else parts_of_name
        module = modules[path] = Module(path, file)
        source = without_text(file.read_text())
        tests |= {path + (found.group(1),) for found in TEST_MODULE.finditer(source)}
        module.text = without_tests(source)
    modules = {path: one for path, one in modules.items() if not any(path[: len(test)] == test for test in tests)}
    for module in modules.values():
        read_imports(modules, module)
        read_paths(modules, module)
    return modules


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def read_imports(modules, module):
    for use in USE.finditer(module.text):
        for path, name in expand(use.group(2)):
            if path[0] not in ("crate", "super", "self") and module.path + path[:1] not in modules:
                continue
            module.references.append((path, line_of(module.text, use.start())))
            if path[-1] == "*":
                module.globs.append(path[:-1])
            else:
                module.exports[name] = path


def read_paths(modules, module):
    body = USE.sub(lambda use: blank(use.group(0)), module.text)
    for found in ABSOLUTE.finditer(body):
        before = body[: found.start()].rstrip()
        if before.endswith("::") or re.search(r"pub\s*\(\s*(in)?$", before):
            continue
        module.references.append((split(found.group(1)), line_of(body, found.start())))
    for found in RELATIVE.finditer(body):
        head, rest = found.group(1), split(found.group(2))
        if head in ("crate", "super", "self"):
            continue
        if head in module.exports:
            module.references.append((module.exports[head] + rest, line_of(body, found.start())))
        elif module.path + (head,) in modules:
            module.references.append((("self", head) + rest, line_of(body, found.start())))


def resolve(modules, at, path, seen=()):
    """The module that a path leads to that is written in the module `at`."""
    if (at, path) in seen:
        return None
    seen += ((at, path),)
    here, rest = ((), path[1:]) if path[0] == "crate" else (at, path)
    while rest:
        segment, after = rest[0], rest[1:]
        if segment == "super":
            here = here[:-1]
        elif here + (segment,) in modules:
            here += (segment,)
        elif segment != "self":
            return re_exported(modules, here, rest, (at, path), seen)
        rest = after
    return here


def re_exported(modules, here, rest, asked, seen):
    """Where a name that the module `here` has from elsewhere is defined; `here` if it is its own."""
    module = modules.get(here)
    if module is None:
        return None
    name = rest[0]
    if name in module.exports and (here, module.exports[name]) != asked:
        found = resolve(modules, here, module.exports[name] + rest[1:], seen)
        if found is not None:
            return found
    for glob in module.globs if name != "*" else ():
        target = resolve(modules, here, glob, seen)
        if target not in modules:
            continue
        if name in modules[target].exports or modules[target].defines(name) or target + (name,) in modules:
            found = resolve(modules, target, ("self",) + rest, seen)
            if found is not None:
                return found
    return here


# --- graphs ---


def graphs(modules):
    """By folder: node -> node -> the references that make the edge."""
    levels = collections.defaultdict(lambda: collections.defaultdict(lambda: collections.defaultdict(list)))
    for module in modules.values():
        for path, line in module.references:
            path = path[:-1] if path[-1] == "*" else path
            target = resolve(modules, module.path, path)
            if target is None or target == module.path:
                continue
            common = 0
            while common < min(len(target), len(module.path)) and target[common] == module.path[common]:
                common += 1
            if common < len(target) and common < len(module.path):
                edges = levels[module.path[:common]][module.path[common]]
                edges[target[common]].append((module.file, line, "::".join(path)))
    return levels


def components(edges):
    """Strongly connected components of more than one node (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in edges.get(node, ()):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            component = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(component) > 1:
                found.append(sorted(component))

    for node in list(edges):
        if node not in index:
            visit(node)
    return found


def cycles(src, verbose=False):
    """The cycles below a crate's `src`, in words."""
    out = []
    for level, edges in sorted(graphs(load(src)).items()):
        for component in components(edges):
            text = f"{shown(src.joinpath(*level))}: {' '.join(component)}"
            if verbose:
                text += "".join(closing_lines(src, edges, component))
            out.append(text)
    return out


def shown(folder):
    return folder.relative_to(workspace.ROOT) if folder.is_relative_to(workspace.ROOT) else folder


def closing_lines(src, edges, component):
    for one in component:
        for other in component:
            if found := edges[one].get(other):
                places = "; ".join(f"{file.relative_to(src)}:{line} {path}" for file, line, path in found[:3])
                yield f"\n    {one} -> {other} ({len(found)}): {places}"


def main(arguments):
    sys.setrecursionlimit(10_000)
    verbose = "-v" in arguments
    failed = False
    for name in [name for name in arguments if name != "-v"] or map(str, workspace.crates()):
        found = cycles(workspace.ROOT / name / "src", verbose)
        failed |= bool(found)
        print("\n".join(found), end="\n" if found else "")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
