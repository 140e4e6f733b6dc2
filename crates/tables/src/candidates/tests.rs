use proptest::prelude::*;

use crate::fold::Fold;
use crate::keyed::Keyed;
use crate::table::{Body, Scratch, Table};
use crate::text::alias_targets::Includes;

use super::{Candidates, Options, Owner, Parents};

fn keys(owner: Owner, key: &str, options: &Options<'_>) -> Vec<String> {
    let mut candidates = Candidates::default();
    candidates.set(owner, key.as_bytes(), options);
    candidates.iter().map(|candidate| String::from_utf8(candidate.key.to_vec()).unwrap()).collect()
}

fn plain(owner: Owner, key: &str) -> Vec<String> {
    keys(owner, key, &Options::default())
}

const LOCAL: Options<'static> = Options { delimiters: b"+", is_local: true, parents: None };

#[test]
fn access_of_postfix() {
    assert_eq!(
        plain(Owner::Access, "user+ext@a.example.com"),
        ["user+ext@a.example.com", "user@a.example.com", "a.example.com", "example.com", "com", "user+ext@", "user@"]
    );
    let dotted = Options { parents: Some(Parents::Dotted), ..Options::default() };
    assert_eq!(keys(Owner::Access, "a.example.com", &dotted), ["a.example.com", ".example.com", ".com"]);
    assert_eq!(plain(Owner::Access, "mx.example.com"), ["mx.example.com", "example.com", "com"]);
    assert_eq!(plain(Owner::Access, "1.2.3.4"), ["1.2.3.4", "1.2.3", "1.2", "1"]);
    assert_eq!(
        plain(Owner::Access, "2001:db8::1"),
        ["2001:db8::1", "2001:db8:", "2001:db8", "2001"],
        "as Postfix takes it apart"
    );
    assert_eq!(plain(Owner::Access, "<>"), ["<>"]);
    assert_eq!(plain(Owner::Access, "u@[1.2.3.4]"), ["u@[1.2.3.4]", "[1.2.3.4]", "u@"]);
}

#[test]
fn transport_of_postfix() {
    assert_eq!(
        plain(Owner::Transport, "u+x@a.example.com"),
        ["u+x@a.example.com", "u@a.example.com", "a.example.com", ".example.com", ".com", "*"]
    );
    assert_eq!(plain(Owner::Transport, "example.com"), ["example.com", ".com", "*"]);
    let parents = Options { parents: Some(Parents::Plain), ..Options::default() };
    assert_eq!(keys(Owner::Transport, "a.b.c", &parents), ["a.b.c", "b.c", "c", "*"]);
}

#[test]
fn quoted_local_parts_have_two_spellings() {
    let address = "\"a..b+x\"@b.c";
    let virtual_keys = ["\"a..b+x\"@b.c", "a..b+x@b.c", "\"a..b\"@b.c", "a..b@b.c", "@b.c"];
    assert_eq!(plain(Owner::Virtual, address), virtual_keys);
    assert_eq!(plain(Owner::Transport, address)[..4], virtual_keys[..4]);
    assert_eq!(plain(Owner::Access, address)[6..], ["\"a..b+x\"@", "a..b+x@", "\"a..b\"@", "a..b@"]);
    assert_eq!(plain(Owner::Aliases, "\"a.\"@b.c"), ["\"a.\"", "a."]);
    assert_eq!(plain(Owner::AccessDb, "To:\".a\"@b.c")[..3], ["To:\".a\"@b.c", "To:.a@b.c", "\".a\"@b.c"]);
    assert_eq!(plain(Owner::Virtual, "\"\"@b.c"), ["\"\"@b.c", "@b.c"], "nothing is not everybody");
    assert_eq!(keys(Owner::Generic, "\"a b\"@b.c", &LOCAL), ["\"a b\"@b.c", "\"a b\"", "@b.c"]);
    let mut candidates = Candidates::default();
    candidates.set(Owner::Virtusertable, address.as_bytes(), &Options::default());
    let found: Vec<_> = candidates.iter().map(|candidate| (candidate.key, candidate.is_partial)).collect();
    assert_eq!(found[..2], [(address.as_bytes(), false), (&b"a..b+x@b.c"[..], false)]);
    let last = candidates.iter().last().unwrap();
    assert_eq!((last.key, last.arguments), (&b"@b.c"[..], [&b"a..b"[..], b"x", b"+x"]));
}

#[test]
fn addresses_of_postfix() {
    assert_eq!(plain(Owner::Virtual, "u+x@b.c"), ["u+x@b.c", "u@b.c", "@b.c"]);
    assert_eq!(keys(Owner::Canonical, "u+x@b.c", &LOCAL), ["u+x@b.c", "u@b.c", "u+x", "u", "@b.c"]);
    assert_eq!(keys(Owner::Generic, "u@b.c", &LOCAL), ["u@b.c", "u", "@b.c"]);
    assert_eq!(plain(Owner::Aliases, "list+bounces@b.c"), ["list+bounces", "list"]);
}

#[test]
fn extensions_of_postfix() {
    let minus = Options { delimiters: b"+-", ..Options::default() };
    let local = |key: &str| keys(Owner::Aliases, key, &minus);
    assert_eq!(local("a-b+c"), ["a-b+c", "a"]);
    for whole in ["owner-list", "List-REQUEST", "postmaster", "MAILER-DAEMON", "double-bounce", "+x", "plain"] {
        assert_eq!(local(whole), [whole]);
    }
    assert_eq!(local("owner+x"), ["owner+x", "owner"]);
}

#[test]
fn mailertable_of_sendmail() {
    let mut candidates = Candidates::default();
    candidates.set(Owner::Mailertable, b"a.b.example.com", &Options::default());
    let found: Vec<(&[u8], &[u8], &[u8])> =
        candidates.iter().map(|found| (found.key, found.arguments[0], found.arguments[1])).collect();
    let expected: [(&[u8], &[u8], &[u8]); 5] = [
        (b"a.b.example.com", b"", b""),
        (b".b.example.com", b"a", b"a"),
        (b".example.com", b"a.b", b"b"),
        (b".com", b"a.b.example", b"example"),
        (b".", b"a.b.example.com", b""),
    ];
    assert_eq!(found, expected);
    assert_eq!(plain(Owner::Mailertable, "[1.2.3.4]"), ["[1.2.3.4]", "."]);
}

#[test]
fn virtusertable_of_sendmail() {
    let mut candidates = Candidates::default();
    candidates.set(Owner::Virtusertable, b"u+d@b.c", &Options::default());
    let found: Vec<(&[u8], [&[u8]; 3])> = candidates.iter().map(|found| (found.key, found.arguments)).collect();
    let detail: [&[u8]; 3] = [b"u", b"d", b"+d"];
    let expected: [(&[u8], [&[u8]; 3]); 7] = [
        (b"u+d@b.c", [b"u+d", b"", b""]),
        (b"u++@b.c", detail),
        (b"u+*@b.c", detail),
        (b"u@b.c", detail),
        (b"++@b.c", detail),
        (b"+*@b.c", detail),
        (b"@b.c", detail),
    ];
    assert_eq!(found, expected);
    assert_eq!(plain(Owner::Virtusertable, "u+@b.c"), ["u+@b.c", "u+*@b.c", "u@b.c", "+*@b.c", "@b.c"]);
    assert_eq!(plain(Owner::Virtusertable, "u@b.c"), ["u@b.c", "@b.c"]);
}

#[test]
fn genericstable_of_sendmail() {
    assert_eq!(plain(Owner::Genericstable, "u+d@b.c"), ["u+d@b.c", "u+*@b.c", "u@b.c", "@b.c", "u+d", "u+*", "u"]);
    assert_eq!(plain(Owner::Genericstable, "u"), ["u"]);
}

#[test]
fn access_of_sendmail() {
    assert_eq!(
        plain(Owner::AccessDb, "From:u+d@a.b"),
        [
            "From:u+d@a.b",
            "u+d@a.b",
            "From:u+*@a.b",
            "u+*@a.b",
            "From:u@a.b",
            "u@a.b",
            "From:u+d@",
            "u+d@",
            "From:u+*@",
            "u+*@",
            "From:u@",
            "u@",
            "From:a.b",
            "a.b",
            "From:b",
            "b"
        ]
    );
    assert_eq!(plain(Owner::AccessDb, "To:u@b"), ["To:u@b", "u@b", "To:b", "b"]);
    assert_eq!(keys(Owner::AccessDb, "To:u@b", &LOCAL), ["To:u@b", "u@b", "To:u@", "u@", "To:b", "b"]);
    assert_eq!(
        plain(Owner::AccessDb, "Connect:10.1.2"),
        ["Connect:10.1.2", "10.1.2", "Connect:1.2", "1.2", "Connect:2", "2"]
    );
    assert_eq!(
        plain(Owner::AccessDb, "Connect:10.1.2.3"),
        ["Connect:10.1.2.3", "10.1.2.3", "Connect:10.1.2", "10.1.2", "Connect:10.1", "10.1", "Connect:10", "10"]
    );
    assert_eq!(
        plain(Owner::AccessDb, "ClientRate:2001:db8::1"),
        ["ClientRate:2001:db8::1", "ClientRate:2001:db8", "ClientRate:2001"]
    );
    assert_eq!(
        plain(Owner::AccessDb, "ClientRate:IPv6:2001:db8:2::5"),
        [
            "ClientRate:IPv6:2001:db8:2:0:0:0:0:5",
            "ClientRate:IPv6:2001:db8:2::5",
            "ClientRate:IPv6:2001:db8:2:0:0:0:0",
            "ClientRate:IPv6:2001:db8:2:0:0:0",
            "ClientRate:IPv6:2001:db8:2:0:0",
            "ClientRate:IPv6:2001:db8:2:0",
            "ClientRate:IPv6:2001:db8:2",
            "ClientRate:IPv6:2001:db8",
            "ClientRate:IPv6:2001",
            "ClientRate:IPv6"
        ]
    );
    assert_eq!(plain(Owner::AccessDb, "From:[10.1]"), ["From:[10.1]", "[10.1]", "From:[10]", "[10]"]);
}

proptest! {
    /// Checks that each key occurs once, the first is whole, and reused buffers change nothing.
    #[test]
    fn keys_of_anything(key in "[a-c+.@:0-9\\[\\]-]{0,16}", other in "[a-c@.]{0,9}", local in any::<bool>()) {
        let options = Options { is_local: local, delimiters: b"+-", parents: None };
        let mut candidates = Candidates::default();
        for (owner, _) in Owner::ALL {
            candidates.set(owner, other.as_bytes(), &options);
            candidates.set(owner, key.as_bytes(), &options);
            let found: Vec<Vec<u8>> = candidates.iter().map(|candidate| candidate.key.to_vec()).collect();
            let strings: Vec<Vec<u8>> = keys(owner, &key, &options).into_iter().map(String::into_bytes).collect();
            prop_assert_eq!(&found, &strings);
            prop_assert!(!found.is_empty() && found.len() <= 4 * key.len() + 9);
            for (at, candidate) in candidates.iter().enumerate() {
                prop_assert_eq!(candidate.is_partial, at > 0);
            }
        }
    }
}

/// Makes a table with these keys.
fn table(fold: Fold, keys: &[String]) -> Table {
    let (mut keyed, mut folded) = (Keyed::new(fold, 0), Vec::new());
    for (line, key) in keys.iter().enumerate() {
        // Of two keys that fold to the same text, the first is kept.
        let _ = keyed.add(key.as_bytes(), key.as_bytes(), line as u32, &mut folded);
    }
    let keyed = keyed.finish();
    let body = if fold == Fold::Ascii { Body::Makemap(keyed) } else { Body::Keyed(keyed) };
    Table { file: None, body, includes: Includes::new() }
}

proptest! {
    /// Checks that a precomputed key finds the same entry as a direct lookup, in both kinds of tables; the Kelvin
    /// sign folds to `k`.
    #[test]
    fn a_candidate_finds_what_its_key_finds(
        key in "[a-cA-C\u{212a}k\u{df}\u{c9}\u{e9}+.@]{0,9}",
        keys in proptest::collection::vec("[a-cA-C\u{212a}k\u{df}\u{c9}\u{e9}+.@]{1,5}", 0..40),
    ) {
        let (mut candidates, mut one, mut other) = (Candidates::default(), Scratch::default(), Scratch::default());
        for table in [table(Fold::Unicode, &keys), table(Fold::Ascii, &keys)] {
            for (owner, _) in Owner::ALL {
                candidates.set(owner, key.as_bytes(), &Options::default());
                for candidate in candidates.iter() {
                    let found = table.get_candidate(&candidate, &mut one);
                    prop_assert_eq!(found, table.get(candidate.key, &mut other));
                }
            }
        }
    }
}
