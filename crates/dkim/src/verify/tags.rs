//! Tag lists, `a=b; c=d` (RFC 6376 section 3.2): signatures, key records and DMARC records.

/// Maximum tags of a list; the longest known ones have some 15.
const TAGS_MAX: usize = 64;

/// Why a list is malformed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TagError {
    #[error("{0:?} is not NAME=VALUE")]
    Pair(String),
    #[error("{0:?} is not a tag name")]
    Name(String),
    #[error("the tag {0} is repeated")]
    Repeated(String),
    #[error("it has more than {TAGS_MAX} tags")]
    TooMany,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Tag {
    name: String,
    value: String,
}

/// The tags of a list, each at most once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TagList(Vec<Tag>);

impl TagList {
    /// Parses a list, which may be folded.
    ///
    /// # Errors
    /// A tag is malformed or repeated, or there are too many.
    pub fn parse(text: &[u8]) -> Result<TagList, TagError> {
        match TagList::parse_lenient(text) {
            (tags, None) => Ok(tags),
            (_, Some(error)) => Err(error),
        }
    }

    /// Parses the well-formed tags and returns the first error, if any.
    pub fn parse_lenient(text: &[u8]) -> (TagList, Option<TagError>) {
        let text = String::from_utf8_lossy(text);
        let (mut tags, mut first_error) = (TagList::default(), None);
        for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            if let Err(error) = tags.add(part) {
                let is_over = error == TagError::TooMany;
                first_error = first_error.or(Some(error));
                if is_over {
                    break;
                }
            }
        }
        (tags, first_error)
    }

    fn add(&mut self, part: &str) -> Result<(), TagError> {
        let (name, value) = part.split_once('=').ok_or_else(|| TagError::Pair(part.to_owned()))?;
        let (name, value) = (name.trim_end(), value.trim_start());
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'_');
        match () {
            () if !is_name => Err(TagError::Name(name.to_owned())),
            () if self.value(name).is_some() => Err(TagError::Repeated(name.to_owned())),
            () if self.0.len() == TAGS_MAX => Err(TagError::TooMany),
            () => {
                self.0.push(Tag { name: name.to_owned(), value: value.to_owned() });
                Ok(())
            }
        }
    }

    /// Returns the value of a tag.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|tag| tag.name == name).map(|tag| &*tag.value)
    }

    /// Returns the value without white space, for tags in which it has no meaning.
    pub fn compact(&self, name: &str) -> Option<String> {
        Some(self.value(name)?.split_ascii_whitespace().collect())
    }

    /// Returns the names, in order. `v` is the first in records with a version.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|tag| &*tag.name)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_are_read_and_faults_found() {
        let tags = TagList::parse(b" v = DKIM1 ;\r\n\tb= ab\r\n cd; empty=; x_1=a=b;").unwrap();
        assert_eq!((tags.names().next(), tags.value("v")), (Some("v"), Some("DKIM1")));
        assert_eq!((tags.compact("b").as_deref(), tags.value("empty")), (Some("abcd"), Some("")));
        assert_eq!((tags.value("x_1"), tags.value("V")), (Some("a=b"), None));
        let many: Vec<String> = (0..=TAGS_MAX).map(|n| format!("t{n}=1")).collect();
        let many = many.join(";");
        for (wrong, error) in [
            ("a", TagError::Pair("a".to_owned())),
            ("a=1;a=2", TagError::Repeated("a".to_owned())),
            ("=1", TagError::Name(String::new())),
            ("1a=1", TagError::Name("1a".to_owned())),
            ("a b=1", TagError::Name("a b".to_owned())),
            (&many, TagError::TooMany),
        ] {
            assert_eq!(TagList::parse(wrong.as_bytes()), Err(error), "{wrong}");
        }
        let (tags, error) = TagList::parse_lenient(b"v=1; x; a=1; a=2; b=3");
        assert_eq!(tags.names().collect::<String>(), "vab");
        assert_eq!((tags.value("a"), error), (Some("1"), Some(TagError::Pair("x".to_owned()))));
    }

    proptest! {
        #[test]
        fn any_list_is_read(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let (tags, error) = TagList::parse_lenient(&text);
            prop_assert_eq!(TagList::parse(&text), error.map_or(Ok(tags), Err));
        }
    }
}
