"""What the checks find, in small made-up trees."""

import pathlib
import tempfile
import unittest

import cycles
import paths
import sizes


class Tree(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)

    def write(self, files):
        for name, text in files.items():
            path = self.root / "one/src" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def cycles(self, files):
        self.write({"lib.rs": "".join(f"mod {name.split('/')[0].removesuffix('.rs')};\n" for name in files), **files})
        return cycles.cycles(self.root / "one/src", verbose=True)


class Paths(unittest.TestCase):
    def test_a_path_that_is_not_there(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "crates/one/src/two").mkdir(parents=True)
            (root / "kit").mkdir()
            text = "`one/two/`, `kit/`, `one/three.rs`, `three.rs`, `a b/c`"
            self.assertEqual(paths.missing(text, root), ["one/three.rs"])

    def test_a_dependency_that_the_table_does_not_have(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for crate, uses in [("one", ""), ("two", "stentor-one.workspace = true\nserde = \"1\"\n")]:
                (root / "crates" / crate).mkdir(parents=True)
                (root / "crates" / crate / "Cargo.toml").write_text(f"[dependencies]\n{uses}")
            table = "| crate | is | begin at | may depend on |\n|---|---|---|---|\n| `one` | a | b | none of ours |\n| `two` | a | b | {} |\n\n"
            self.assertEqual(list(paths.untrue(table.format("`one`"), root)), [])
            self.assertEqual(list(paths.untrue(table.format("none of ours"), root)), ["two uses one, not none"])


class Cycles(Tree):
    def assert_cycle(self, files, *nodes):
        found = self.cycles(files)
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].split("\n")[0].endswith(": " + " ".join(nodes)), found)

    def test_two_files_that_import_each_other(self):
        self.assert_cycle({"a.rs": "use crate::b::B;\npub struct A;", "b.rs": "use crate::a::A;\npub struct B;"}, "a", "b")

    def test_one_direction_is_none(self):
        self.assertEqual(self.cycles({"a.rs": "use crate::b::B;", "b.rs": "pub struct B;"}), [])

    def test_three_folders_and_the_lines_that_close_them(self):
        found = self.cycles({
            "a/mod.rs": "use crate::b::deep::B;",
            "b/mod.rs": "pub mod deep;",
            "b/deep.rs": "\nuse super::super::c;\npub struct B; fn f() { c::g() }",
            "c.rs": "pub fn g() { crate::a::h() }",
        })
        self.assertEqual(len(found), 1, found)
        self.assertIn("b -> c (2): b/deep.rs:2 super::super::c; b/deep.rs:3 super::super::c::g", found[0])

    def test_paths_groups_and_aliases_count(self):
        self.assert_cycle(
            {"a.rs": "use crate::{b::{self as other, B}, c};\nfn f() { other::g() }", "b.rs": "fn h() -> crate::a::A { todo!() }",
             "c.rs": ""}, "a", "b")

    def test_re_exports_are_followed(self):
        # `front` has the name from `a`: who uses it by way of `front` depends on `a` too.
        files = {"front/mod.rs": "pub mod kind;\npub use crate::a::A;\npub use kind::*;", "front/kind.rs": "pub struct K;"}
        self.assertEqual(self.cycles({**files, "a.rs": "pub struct A;", "b.rs": "use crate::front::{A, K};"}), [])
        self.assert_cycle({**files, "a.rs": "use crate::b::B;", "b.rs": "use crate::front::A;\npub struct B;"}, "a", "b")
        # By a glob it leads into `front` itself.
        self.assert_cycle(
            {"front/mod.rs": "mod kind;\npub use kind::*;", "front/kind.rs": "use crate::b::B;\npub struct K;",
             "b.rs": "use crate::front::K;\npub struct B;"}, "b", "front")

    def test_children_and_parents_may_name_each_other(self):
        self.assertEqual(self.cycles({"a/mod.rs": "mod b;\nuse b::B;\npub struct A;", "a/b.rs": "use super::A;\npub struct B;"}), [])

    def test_siblings_within_a_folder_may_not(self):
        self.assert_cycle(
            {"a/mod.rs": "mod b;\nmod c;", "a/b.rs": "use super::c::C;\npub struct B;", "a/c.rs": "use super::b::B;\npub struct C;"},
            "b", "c")

    def test_tests_comments_and_strings_do_not_count(self):
        b = "pub struct B;\n"
        for text in [
            "#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}",
            "#[cfg(test)]\nuse crate::a::A;",
            "// use crate::a::A;\n/* /* use */ crate::a::A */",
            "const X: &str = \"use crate::a::A; \\\" crate::a\";",
            "const X: &str = r#\"use crate::a::A; \" crate::a::A\"#;",
            "const X: (char, char) = ('\"', '\\''); // crate::a::A",
            "pub(in crate::a) struct C;",
            "use other::crate_a::a::A;",
        ]:
            with self.subTest(text):
                self.assertEqual(self.cycles({"a.rs": "use crate::b::B;", "b.rs": b + text}), [])

    def test_a_file_of_tests_does_not_count(self):
        files = {"a.rs": "use crate::b::B;", "b/mod.rs": "pub struct B;\n#[cfg(test)]\nmod check;", "b/check.rs": "use crate::a::A;"}
        self.assertEqual(self.cycles(files), [])


class Sizes(Tree):
    def test_a_long_file_fails(self):
        self.write({"lib.rs": "\n" * sizes.FILE_LINES_MAX})
        self.assertEqual(sizes.files_too_long("one", self.root), [])
        self.write({"lib.rs": "\n" * (sizes.FILE_LINES_MAX + 1)})
        self.assertEqual(sizes.files_too_long("one", self.root), ["one/src/lib.rs: 801 lines, more than 800"])

    def test_a_large_crate_is_a_warning(self):
        self.write({"lib.rs": "", **{f"m{n}.rs": "\n" * 700 for n in range(21)}})
        self.assertEqual(sizes.files_too_long("one", self.root), [])
        self.assertEqual(sizes.crate_too_long("one", self.root), ["one/src: 14700 lines, more than 14000"])


if __name__ == "__main__":
    unittest.main()
