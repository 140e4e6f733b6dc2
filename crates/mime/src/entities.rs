//! Named character references (HTML Standard, section 13.5), found in time linear in the length of a name.
//!
//! Two tables with open addressing are built at compile time. A name is hashed once, octet by octet, and its prefixes
//! are looked up along the way: most invented names cost an addition and an empty slot per octet.

use html_escape::NAMED_ENTITIES;

/// References that are valid without a semicolon.
const BARE: [&str; 106] = [
    "amp", "lt", "gt", "quot", "AMP", "LT", "GT", "QUOT", "COPY", "REG", "nbsp", "iexcl", "cent", "pound", "curren",
    "yen", "brvbar", "sect", "uml", "copy", "ordf", "laquo", "not", "shy", "reg", "macr", "deg", "plusmn", "sup2",
    "sup3", "acute", "micro", "para", "middot", "cedil", "sup1", "ordm", "raquo", "frac14", "frac12", "frac34",
    "iquest", "Agrave", "Aacute", "Acirc", "Atilde", "Auml", "Aring", "AElig", "Ccedil", "Egrave", "Eacute", "Ecirc",
    "Euml", "Igrave", "Iacute", "Icirc", "Iuml", "ETH", "Ntilde", "Ograve", "Oacute", "Ocirc", "Otilde", "Ouml",
    "times", "Oslash", "Ugrave", "Uacute", "Ucirc", "Uuml", "Yacute", "THORN", "szlig", "agrave", "aacute", "acirc",
    "atilde", "auml", "aring", "aelig", "ccedil", "egrave", "eacute", "ecirc", "euml", "igrave", "iacute", "icirc",
    "iuml", "eth", "ntilde", "ograve", "oacute", "ocirc", "otilde", "ouml", "divide", "oslash", "ugrave", "uacute",
    "ucirc", "uuml", "yacute", "thorn", "yuml",
];
/// Minimum length of these; the maximum follows.
const BARE_BYTES_MIN: usize = 2;
const BARE_BYTES_MAX: usize = 6;
/// Number of slots in each table, at least twice the number of names.
const NAMED_SLOTS: usize = 8_192;
const BARE_SLOTS: usize = 1_024;
/// Marker of an empty slot.
const EMPTY: u16 = u16::MAX;

/// Constants of FNV-1a.
const HASH_BEGIN: u32 = 0x811c_9dc5;

const fn hashed(hash: u32, octet: u8) -> u32 {
    (hash ^ octet as u32).wrapping_mul(0x0100_0193)
}

const fn slot(hash: u32, slots: usize) -> usize {
    (hash ^ (hash >> 15)) as usize & (slots - 1)
}

const fn hash_of(name: &[u8]) -> u32 {
    let (mut hash, mut at) = (HASH_BEGIN, 0);
    while at < name.len() {
        hash = hashed(hash, name[at]);
        at += 1;
    }
    hash
}

const fn insert<const SLOTS: usize>(table: &mut [u16; SLOTS], name: &[u8], index: usize) {
    let mut at = slot(hash_of(name), SLOTS);
    while table[at] != EMPTY {
        at = (at + 1) & (SLOTS - 1);
    }
    table[at] = index as u16;
}

static NAMED: [u16; NAMED_SLOTS] = {
    let (mut table, mut index) = ([EMPTY; NAMED_SLOTS], 0);
    while index < NAMED_ENTITIES.len() {
        insert(&mut table, NAMED_ENTITIES[index].0, index);
        index += 1;
    }
    table
};

static BARE_NAMED: [u16; BARE_SLOTS] = {
    let (mut table, mut index) = ([EMPTY; BARE_SLOTS], 0);
    while index < BARE.len() {
        insert(&mut table, BARE[index].as_bytes(), index);
        index += 1;
    }
    table
};

/// Index of the name with this hash, and the number of slots examined.
fn find(table: &[u16], hash: u32, is_name: impl Fn(usize) -> bool) -> (Option<usize>, usize) {
    let (mut at, mut looked_at) = (slot(hash, table.len()), 1);
    while table[at] != EMPTY {
        let index = usize::from(table[at]);
        if is_name(index) {
            return (Some(index), looked_at);
        }
        at = (at + 1) & (table.len() - 1);
        looked_at += 1;
    }
    (None, looked_at)
}

/// The text of a name before a semicolon.
pub fn named(name: &[u8]) -> Option<&'static str> {
    // Converted to an ordinary space, for searches.
    if name == b"nbsp" {
        return Some(" ");
    }
    let (index, _) = find(&NAMED, hash_of(name), |index| NAMED_ENTITIES[index].0 == name);
    index.map(|index| NAMED_ENTITIES[index].1)
}

/// The longest prefix of a name that is valid without a semicolon: its length and text.
pub fn bare(name: &[u8]) -> Option<(usize, &'static str)> {
    let (mut hash, mut found) = (HASH_BEGIN, 0);
    for (octets, octet) in (1..=BARE_BYTES_MAX).zip(name) {
        hash = hashed(hash, *octet);
        let begin = &name[..octets];
        if octets >= BARE_BYTES_MIN && find(&BARE_NAMED, hash, |index| BARE[index].as_bytes() == begin).0.is_some() {
            found = octets;
        }
    }
    named(&name[..found]).map(|text| (found, text))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_name_is_found() {
        for (name, text) in &NAMED_ENTITIES {
            assert_eq!(named(name), Some(if *name == b"nbsp" { " " } else { *text }));
        }
        for name in BARE {
            assert!((BARE_BYTES_MIN..=BARE_BYTES_MAX).contains(&name.len()), "{name}");
            assert_eq!(
                bare(format!("{name}0").as_bytes()),
                named(name.as_bytes()).map(|text| (name.len(), text)),
                "{name}"
            );
        }
        // The longest prefix counts (HTML Standard, section 13.2.5.73).
        for (name, wanted) in
            [("notit", Some((3, "¬"))), ("frac12x", Some((6, "½"))), ("sup", None), ("l", None), ("", None)]
        {
            assert_eq!(bare(name.as_bytes()), wanted, "{name}");
        }
        for none in ["", "x", "nope", "ampx", &"a".repeat(40)] {
            assert_eq!(named(none.as_bytes()), None, "{none}");
        }
    }

    /// Checks that lookups are bounded: no run of full slots is long.
    #[test]
    fn few_slots_are_looked_at() {
        let longest = |table: &[u16]| {
            let twice = table.iter().chain(table);
            twice.fold((0, 0), |(run, most): (usize, usize), at| {
                let run = if *at == EMPTY { 0 } else { run + 1 };
                (run, most.max(run))
            })
        };
        assert!(longest(&NAMED).1 <= 16, "{}", longest(&NAMED).1);
        assert!(longest(&BARE_NAMED).1 <= 8, "{}", longest(&BARE_NAMED).1);
    }

    proptest! {
        #[test]
        fn as_a_search_finds_them(name in "[a-zA-Z]{0,7}[0-9]{0,2}") {
            let wanted = NAMED_ENTITIES.iter().find(|(known, _)| *known == name.as_bytes()).map(|(_, text)| *text);
            prop_assert_eq!(named(name.as_bytes()), wanted.map(|text| if name == "nbsp" { " " } else { text }));
        }
    }
}
