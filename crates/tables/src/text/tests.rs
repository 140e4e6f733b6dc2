use std::fmt::Write as _;

use proptest::prelude::*;

use super::{aliases, makemap, postmap};
use crate::diagnostic::{FileReport, LoadReport, TableProblem};
use crate::keyed::Keyed;

fn read(reader: fn(&[u8], &mut FileReport<'_>) -> Keyed, text: &str) -> (Keyed, Vec<(u32, TableProblem)>) {
    let mut report = LoadReport::default();
    let keyed = reader(text.as_bytes(), &mut FileReport { file: "t", report: &mut report });
    (keyed, report.diagnostics.into_iter().map(|found| (found.line, found.problem)).collect())
}

fn value(keyed: &Keyed, key: &str) -> Option<(String, u32)> {
    let found = keyed.get(key.as_bytes(), &mut Vec::new())?;
    Some((String::from_utf8(found.value.to_vec()).unwrap(), found.line))
}

/// Compares with the answers of Debian's postmap 3.7 for the same file.
#[test]
fn postfix_form_is_what_postmap_makes_of_it() {
    let text = "Key1 v1\n# c\nkey1 dup\n  cont\n\n  cont2\n\"a b\" quoted\n\"a b quoted unbal\nx:\tcolon\nonlykey\nÄÖ uml\nß sz\n\
                ab\\ c esc\n   lead x\nK2 v2   \n<> null\n";
    let (keyed, found) = read(postmap::read, text);
    for (key, expected) in [
        ("key1", Some(("v1", 1))),
        ("\"A B\"", Some(("quoted", 7))),
        ("a b", None),
        ("x:", Some(("colon", 9))),
        ("x", None),
        ("äö", Some(("uml", 11))),
        ("SS", Some(("sz", 12))),
        ("ab\\ c", Some(("esc   lead x", 13))),
        ("lead", None),
        ("K2", Some(("v2", 15))),
        ("<>", Some(("null", 16))),
        ("cont", None),
    ] {
        assert_eq!(value(&keyed, key), expected.map(|(value, line)| (value.to_owned(), line)), "{key}");
    }
    assert_eq!(
        found,
        [
            (3, TableProblem::Duplicate { key: "key1".into(), first: 1 }),
            (8, TableProblem::UnbalancedQuote),
            (9, TableProblem::LooksLikeAliases),
            (10, TableProblem::NoValue),
        ]
    );
}

#[test]
fn a_continued_line_goes_on_behind_comments_and_empty_lines() {
    let (keyed, found) = read(postmap::read, "  lost\nk v\n\n# c\n  # d\n\tw\nl x\r\n");
    assert_eq!((value(&keyed, "k"), value(&keyed, "l")), (Some(("v\tw".into(), 2)), Some(("x".into(), 7))));
    assert_eq!(found, [(1, TableProblem::NothingToContinue)]);
}

#[test]
fn a_line_without_end_is_an_error() {
    let (_, found) = read(postmap::read, &"x ".repeat(crate::LINE_BYTES_MAX));
    assert_eq!(found, [(1, TableProblem::LineTooLong { max: crate::LINE_BYTES_MAX })]);
    let continued = "x v\n".to_owned() + &" 0123456789\n".repeat(crate::LINE_BYTES_MAX / 10);
    assert_eq!(read(postmap::read, &continued).1[0].0, 1);
}

#[test]
fn makemap_form() {
    let text = "# c\nConnect:10.0\tRELAY\n From:x y\nTo:A@b  ERROR:5.7.1:\"550 a b\" \nto:a@B  OK\nnone\n\nFrom:# OK\n";
    let (keyed, found) = read(makemap::read, text);
    assert_eq!(value(&keyed, "connect:10.0"), Some(("RELAY".into(), 2)));
    assert_eq!(value(&keyed, "to:a@b"), Some(("ERROR:5.7.1:\"550 a b\" ".into(), 4)));
    assert_eq!(value(&keyed, "from:#"), Some(("OK".into(), 8)));
    assert_eq!(
        found,
        [
            (3, TableProblem::NothingToContinue),
            (5, TableProblem::Duplicate { key: "to:a@B".into(), first: 4 }),
            (6, TableProblem::NoValue)
        ]
    );
}

#[test]
fn alias_form() {
    let text = "# c\nPostmaster: root\n\"a b\" : x,\n  y\nlist: |\"/usr/bin/prog -a: b\"\nowner-l:\t:include:/l\nbad root\n\"open: x\nnone:\n";
    let (keyed, found) = read(aliases::read, text);
    assert_eq!(value(&keyed, "postmaster"), Some(("root".into(), 2)));
    assert_eq!(value(&keyed, "a b"), Some(("x,  y".into(), 3)));
    assert_eq!(value(&keyed, "LIST"), Some(("|\"/usr/bin/prog -a: b\"".into(), 5)));
    assert_eq!(value(&keyed, "owner-l"), Some((":include:/l".into(), 6)));
    assert_eq!(found, [(7, TableProblem::NoColon), (8, TableProblem::UnbalancedQuote), (9, TableProblem::NoValue)]);
}

proptest! {
    #[test]
    fn entries_are_found_whatever_surrounds_them(
        entries in proptest::collection::vec(("[a-z0-9@.]{1,12}", "[!-~]([ -~]{0,30}[!-~])?"), 1..40),
        noise in proptest::collection::vec("(#[ -~]{0,20}|[ \t]{0,5}|  #x)", 40),
    ) {
        let mut text = String::new();
        for ((key, value), noise) in entries.iter().zip(&noise) {
            writeln!(text, "{key}\t {value} \n{noise}").unwrap();
        }
        let (keyed, _) = read(postmap::read, &text);
        for (at, (key, expected)) in entries.iter().enumerate() {
            let first = entries.iter().position(|(other, _)| other == key) == Some(at);
            if first {
                prop_assert_eq!(value(&keyed, key), Some((expected.clone(), 2 * at as u32 + 1)));
            }
        }
    }

    #[test]
    fn no_octets_are_too_much(text in proptest::collection::vec(any::<u8>(), 0..400)) {
        for reader in [postmap::read, makemap::read, aliases::read] {
            let mut report = LoadReport::default();
            reader(&text, &mut FileReport { file: "t", report: &mut report });
            for found in report.diagnostics {
                prop_assert!(found.line as usize <= text.split(|&byte| byte == b'\n').count());
            }
        }
    }
}

proptest! {
    /// Finds the first existing name without building a table, with the same result as a table.
    #[test]
    fn one_alias_is_found_as_in_the_table(lines in proptest::collection::vec("(?i)[ab#\"]{0,2}[:\t ]{0,2}[ab]{0,2}", 0..12)) {
        let text = lines.join("\n");
        let (keyed, _) = read(aliases::read, &text);
        let names: [&[u8]; 3] = [b"Ab", b"b", b"BB"];
        let expected = names.iter().enumerate().find_map(|(at, name)| Some((at, keyed.get(name, &mut Vec::new())?.value.to_vec())));
        prop_assert_eq!(aliases::find(text.as_bytes(), &names), expected);
    }
}
