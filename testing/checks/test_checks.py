"""What the checks find, in small made-up trees."""

import pathlib
import tempfile
import unittest

import cycles
import doc_links
import pages
import paths
import signatures
import sizes
import twins


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


class DocLinks(unittest.TestCase):
    def test_a_name_that_is_not_in_the_code(self):
        text = """//! [`Gone::A`], [`Reply::B`] and [`Gone`].
use x::Reply;
// Gone
    /// [`Self::c`], [`crate::d::E`], [`stentor_x::F`], [`Old::g()`]
    /// [`Far::h`](super::Far::h), [`Other::i`]
    ///
    /// [`Other::i`]: super::Other::i
"""
        self.assertEqual(list(doc_links.stale(text)), [(1, "[`Gone::A`]"), (4, "[`Old::g()`]")])


class Signatures(unittest.TestCase):
    def test_a_tuple_among_parameters_and_none_elsewhere(self):
        text = """fn good(a: (u8, u8), f: impl Fn((u8, u8)) -> u8) {}
fn generic<T: Fn(u8) -> u8>(&self, (a, b): (u8, T)) {}
fn first((a, b): (u8, u8), c: u8) { call(|(x, y)| x + y) }
async fn last(
    c: u8,
    (a, b): (u8, u8),
) {}
"""
        self.assertEqual(list(signatures.tuples(text)), [(2, "generic"), (3, "first"), (4, "last")])

    def test_a_type_without_a_noun(self):
        text = "pub struct Asked;\n    enum Why { A }\nstruct AskedOnce;\nstruct Reply;\npub(super) type Found<T> = T;\n// struct Told\n"
        self.assertEqual(list(signatures.nameless(text)), [(1, "Asked"), (2, "Why"), (5, "Found")])


class Paths(unittest.TestCase):
    def test_a_path_that_is_not_there(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "crates/one/src/two").mkdir(parents=True)
            (root / "kit").mkdir()
            text = "`one/two/`, `kit/`, `one/three.rs`, `three.rs`, `a b/c`"
            self.assertEqual(paths.missing(text, root), ["one/three.rs"])

    def manifests(self, folder, uses):
        root = pathlib.Path(folder)
        (root / "Cargo.toml").write_text("".join(
            ["[workspace.dependencies]\nserde = \"1\"\n"] + [f"stentor-{crate.split('/')[1]} = {{ path = \"{crate}\" }}\n" for crate in uses]))
        for crate, used in uses.items():
            (root / crate).mkdir(parents=True)
            (root / crate / "Cargo.toml").write_text(
                "[dependencies]\nserde.workspace = true\n" + "".join(f"stentor-{name}.workspace = true\n" for name in used))
        return root

    def test_each_crate_has_a_row_above_those_that_it_uses(self):
        uses = {"crates/one": [], "crates/two": ["one"], "kit/three": ["two"]}
        tables = "| crate | is |\n|---|---|\n{}\n\n**kit**\n\n| crate | is |\n|---|---|\n{}\n"
        row = "| `{}` | it |".format
        with tempfile.TemporaryDirectory() as folder:
            root = self.manifests(folder, uses)
            wrong = lambda crates, kit: list(paths.wrong_rows(tables.format("\n".join(map(row, crates)), row(kit)), uses, root))
            self.assertEqual(wrong(["two", "one"], "kit/three"), [])
            self.assertEqual(wrong(["one", "two"], "kit/three"), ["two uses one, which is not below it"])
            self.assertEqual(wrong(["two"], "kit/three"), ["one has 0 rows"])
            self.assertEqual(wrong(["two", "one", "one"], "kit/three"), ["one has 2 rows"])
            self.assertEqual(wrong(["two", "one"], "kit/four"), ["kit/four: no such crate", "kit/three has 0 rows"])

    def test_a_crate_may_not_use_the_kit(self):
        uses = {"crates/one": ["three"], "kit/three": []}
        with tempfile.TemporaryDirectory() as folder:
            text = "| crate | is |\n|---|---|\n| `one` | it |\n| `kit/three` | it |\n"
            found = list(paths.wrong_rows(text, uses, self.manifests(folder, uses)))
            self.assertEqual(found, ["one uses kit/three, which is not below it"])

    def test_the_table_of_dependencies_is_made(self):
        uses = {"crates/one": [], "kit/two": ["one"]}
        with tempfile.TemporaryDirectory() as folder:
            head = "Text.\n\n| crate | uses |\n|---|---|\n"
            made = paths.with_table(head + "| `one` | `gone` |\n\nMore.\n", uses, self.manifests(folder, uses))
            self.assertEqual(made, head + "| `one` | none of ours |\n| `kit/two` | `one` |\n\nMore.\n")

    def test_a_dependency_by_its_path(self):
        with tempfile.TemporaryDirectory() as folder:
            root = self.manifests(folder, {"crates/one": []})
            (root / "testing/fuzz").mkdir(parents=True)
            (root / "testing/fuzz/Cargo.toml").write_text("[dependencies]\nserde = \"1\"\nstentor-one = { path = \"../../crates/one\" }\n")
            self.assertEqual(paths.dependencies("testing/fuzz", root), ["crates/one"])


# Apart from the names of pages, so that no check takes these for real ones.
DOCS = "docs"


class Pages(unittest.TestCase):
    def faults(self, files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve()
            for name, text in files.items():
                (root / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
                (root / "docs" / name).write_text(text)
            return pages.faults(root)

    def test_a_page_over_the_limit(self):
        self.assertEqual(self.faults({"a.md": "x\n" * pages.PAGE_LINES_MAX}), [])
        self.assertEqual(self.faults({"a.md": "x\n" * (pages.PAGE_LINES_MAX + 1)}), [f"{DOCS}/a.md: 251 lines, more than 250"])

    def test_a_page_that_the_index_does_not_have(self):
        self.assertEqual(self.faults({"of/README.md": "[a](a.md)", "of/a.md": "", "of/b.md": ""}), [f"{DOCS}/of/b.md: not in {DOCS}/of/README.md"])


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

    def test_a_long_comment_fails_except_for_tables_and_urls(self):
        end = "x" * sizes.COMMENT_COLUMNS_MAX
        self.write({"lib.rs": f"//! {end}\n    /// | {end} |\n// https://a.example/{end}\nlet a = 1; // {end}\n    // {end}\n"})
        self.write({"short.rs": "// " + "x" * (sizes.COMMENT_COLUMNS_MAX - 3)})
        self.assertEqual(sizes.comments_too_long("one", self.root), [
            "one/src/lib.rs:1: comment of 124 columns, more than 120",
            "one/src/lib.rs:5: comment of 127 columns, more than 120",
        ])

    def test_a_large_crate_is_a_warning(self):
        self.write({"lib.rs": "", **{f"m{n}.rs": "\n" * 700 for n in range(21)}})
        self.assertEqual(sizes.files_too_long("one", self.root), [])
        self.assertEqual(sizes.crate_too_long("one", self.root), ["one/src: 14700 lines, more than 14000"])


class Twins(Tree):
    def faults(self, one, two, local_names=()):
        for crate, text in [("one", one), ("two", two)]:
            (self.root / crate / "src").mkdir(parents=True, exist_ok=True)
            (self.root / crate / "src/lib.rs").write_text(text)
        return twins.faults(["one", "two"], self.root, frozenset(local_names))

    def test_a_name_of_two_crates(self):
        found = self.faults("pub struct Refusal;\npub enum Reply {}", "pub type Refusal = ();\nstruct Reply;\npub(crate) enum Reply {}")
        self.assertEqual(found, ["Refusal has more than one meaning: one/src/lib.rs, two/src/lib.rs"])

    def test_two_of_one_crate_are_none(self):
        self.assertEqual(self.faults("pub struct Refusal;\nmod a {\n    pub struct Refusal;\n}", ""), [])
        self.assertEqual(self.faults("pub struct Refusal;\npub trait Refusal {}", ""), [])

    def test_a_local_name_is_one_while_two_crates_have_it(self):
        self.assertEqual(self.faults("pub struct State;", "pub enum State {}", ["State"]), [])
        self.assertEqual(self.faults("pub struct State;", "", ["State"]), ["State stands in one crate: remove it from LOCAL_NAMES"])


if __name__ == "__main__":
    unittest.main()
