//! The field in which a message asks for copies of its own, as clients write it and as it is stored.
//!
//! Promise: what is stored is the first field before the content, in our own spelling. Nothing of a client or milter
//! stands there, so that the fields before a content ask for nothing unless this server has accepted the request.

use stentor_mime::field::lines;

/// Name of the field. It is never sent on, whoever sends it ([`LEFT_OUT`](crate::headers::LEFT_OUT)).
pub const COPY_REQUEST_FIELD: &str = "X-Stentor-Copies";
const BEGIN: &[u8] = b"X-Stentor-Copies: ";

/// Whether the fields before a content begin with a request.
pub fn has_request(prefix: &[u8]) -> bool {
    prefix.starts_with(BEGIN)
}

/// A message's stored prefix, split into its copy request and the fields that are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredPrefix<'a> {
    /// Value of the request, with its folds; `None`: there is none.
    pub request: Option<&'a [u8]>,
    /// The fields that are sent.
    pub sent: &'a [u8],
}

impl StoredPrefix<'_> {
    pub fn split(prefix: &[u8]) -> StoredPrefix<'_> {
        let none = StoredPrefix { request: None, sent: prefix };
        let Some(field) = lines(prefix).next().filter(|_| has_request(prefix)) else { return none };
        StoredPrefix { request: Some(&field[BEGIN.len()..]), sent: &prefix[field.len()..] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_first_field_is_a_request() {
        let own = StoredPrefix::split(b"X-Stentor-Copies: a;\r\n b\r\nList-Id: <x>\r\n");
        assert_eq!(own.request, Some(&b"a;\r\n b\r\n"[..]));
        assert_eq!(own.sent, b"List-Id: <x>\r\n");
        assert!(BEGIN.starts_with(COPY_REQUEST_FIELD.as_bytes()));
        for other in [
            &b""[..],
            b"List-Id: <x>\r\nX-Stentor-Copies: a\r\n",
            b"List-Id: <x>\r\n X-Stentor-Copies: a\r\n",
            b"X-Stentor-Copies-Not: a\r\n",
        ] {
            assert_eq!(StoredPrefix::split(other), StoredPrefix { request: None, sent: other });
        }
    }
}
