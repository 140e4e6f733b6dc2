//! Which header fields are signed, and their canonical form.
//!
//! Signed are the fields that RFC 6376 section 5.4.1 recommends, those of lists and MIME, and `Feedback-ID`. A field
//! that is **oversigned** is named once more than it occurs: a verifier then rejects the signature if another one is
//! added (RFC 6376 section 8.15). That concerns the fields which readers and their programs show or obey. Those of
//! lists are oversigned only where present, since lists on the way may set their own.
//!
//! Fields that transfer agents add or change on the way (`Received`, `Return-Path`) are never signed.

use stentor_mime::field;

/// How a field is signed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cover {
    /// Oversigned, also if it does not occur.
    Always,
    /// Oversigned if it occurs.
    Present,
    /// Each one that occurs.
    Each,
}

/// Signed fields, in the order of `h=`.
const FIELDS: [(&str, Cover); 34] = [
    ("from", Cover::Always),
    ("reply-to", Cover::Always),
    ("to", Cover::Always),
    ("cc", Cover::Always),
    ("subject", Cover::Always),
    ("sender", Cover::Present),
    ("date", Cover::Present),
    ("message-id", Cover::Present),
    ("in-reply-to", Cover::Present),
    ("references", Cover::Present),
    ("mime-version", Cover::Present),
    ("content-type", Cover::Present),
    ("content-transfer-encoding", Cover::Present),
    ("content-disposition", Cover::Present),
    ("content-id", Cover::Present),
    ("content-description", Cover::Present),
    ("list-id", Cover::Present),
    ("list-unsubscribe", Cover::Present),
    ("list-unsubscribe-post", Cover::Present),
    ("list-post", Cover::Present),
    ("list-help", Cover::Present),
    ("list-subscribe", Cover::Present),
    ("list-owner", Cover::Present),
    ("list-archive", Cover::Present),
    ("feedback-id", Cover::Present),
    ("auto-submitted", Cover::Each),
    ("precedence", Cover::Each),
    ("mail-followup-to", Cover::Each),
    ("resent-date", Cover::Each),
    ("resent-from", Cover::Each),
    ("resent-sender", Cover::Each),
    ("resent-to", Cover::Each),
    ("resent-cc", Cover::Each),
    ("resent-message-id", Cover::Each),
];

/// Longest `h=`, in names. Real messages have some 30; with more the signature itself would be cut by receivers.
pub(crate) const NAMES_MAX: usize = 200;

/// The signed part of a header section.
pub(crate) struct SignedFields {
    /// Names for `h=`, in order; a name occurs once for each signed field.
    pub names: Vec<&'static str>,
    /// Canonical fields in the same order, each with CRLF.
    pub canonical: Vec<u8>,
    pub has_from: bool,
}

impl SignedFields {
    /// Chooses the signed fields of a header section. Repeated fields are taken from the bottom up (RFC 6376 section
    /// 5.4.2).
    pub(crate) fn of(header: &[u8]) -> SignedFields {
        let mut occurring: [Vec<&[u8]>; FIELDS.len()] = std::array::from_fn(|_| Vec::new());
        for whole in field::lines(header) {
            let Some((name, _)) = field::split(whole) else { continue };
            let signed = |(known, _): &(&str, Cover)| known.as_bytes().eq_ignore_ascii_case(name);
            if let Some(at) = FIELDS.iter().position(signed) {
                occurring[at].push(whole);
            }
        }
        let (mut names, mut canonical) = (Vec::new(), Vec::new());
        for ((name, cover), fields) in FIELDS.iter().zip(&occurring) {
            for whole in fields.iter().rev() {
                names.push(*name);
                relax(whole, &mut canonical);
                canonical.extend_from_slice(b"\r\n");
            }
            if *cover == Cover::Always || *cover == Cover::Present && !fields.is_empty() {
                names.push(*name);
            }
        }
        SignedFields { names, canonical, has_from: !occurring[0].is_empty() }
    }
}

/// Appends the relaxed form of a field, without a line end (RFC 6376 section 3.4.2).
pub(crate) fn relax(whole: &[u8], out: &mut Vec<u8>) {
    let Some((name, value)) = field::split(whole) else { return };
    out.extend(name.iter().map(u8::to_ascii_lowercase));
    out.push(b':');
    let (begin, mut has_space) = (out.len(), false);
    let mut rest = value;
    while let Some((octet, behind)) = rest.split_first() {
        rest = behind;
        match octet {
            b' ' | b'\t' => has_space = true,
            b'\r' if rest.first() == Some(&b'\n') => rest = &rest[1..],
            _ => {
                if std::mem::take(&mut has_space) && out.len() > begin {
                    out.push(b' ');
                }
                out.push(*octet);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn relaxed(field: &[u8]) -> String {
        let mut out = Vec::new();
        relax(field, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn fields_of_rfc_6376() {
        // Section 3.4.5.
        assert_eq!(relaxed(b"A: X\r\n"), "a:X");
        assert_eq!(relaxed(b"B : Y\t\r\n\tZ  \r\n"), "b:Y Z");
        assert_eq!(relaxed(b"Subject:\r\n \r\n"), "subject:");
        assert_eq!(relaxed("Subject: Gr\u{fc}\u{df}e \t aus\r\n".as_bytes()), "subject:Gr\u{fc}\u{df}e aus");
    }

    #[test]
    fn repeated_fields_are_taken_from_the_bottom_up() {
        let header = b"To: a@x\r\nReceived: x\r\nTO: b@x\r\nFrom: c@x\r\nList-Unsubscribe: <u>\r\n";
        let signed = SignedFields::of(header);
        assert_eq!(signed.names.join(":"), "from:from:reply-to:to:to:to:cc:subject:list-unsubscribe:list-unsubscribe");
        let canonical = String::from_utf8(signed.canonical).unwrap();
        assert_eq!(canonical, "from:c@x\r\nto:b@x\r\nto:a@x\r\nlist-unsubscribe:<u>\r\n");
        assert!(signed.has_from);
    }

    #[test]
    fn a_header_without_from_is_noticed() {
        assert!(!SignedFields::of(b"To: a@x\r\n").has_from);
        assert!(!SignedFields::of(b"").has_from);
    }

    proptest! {
        #[test]
        fn folding_does_not_matter(words in prop::collection::vec("[a-z\u{e9}]{1,8}", 0..8),
            spaces in prop::collection::vec("( |\t|\r\n |\r\n\t){1,3}", 9)) {
            let mut field = "X:".to_owned();
            for (word, space) in words.iter().zip(&spaces) {
                field.push_str(space);
                field.push_str(word);
            }
            field.push_str(&spaces[8]);
            prop_assert_eq!(relaxed(field.as_bytes()), format!("x:{}", words.join(" ")));
        }

        #[test]
        fn any_octets_are_taken(header in prop::collection::vec(any::<u8>(), 0..200)) {
            SignedFields::of(&header);
        }
    }
}
