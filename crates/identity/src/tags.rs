//! Tag lists of DKIM and DMARC records (RFC 6376 section 3.2): `name=value; name=value`.

/// Longest record examined; real ones are below 1 KiB.
const RECORD_BYTES_MAX: usize = 8 * 1024;

/// One tag; white space around name and value is removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tag {
    pub name: String,
    pub value: String,
}

/// The tags of a record, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tags(Vec<Tag>);

impl Tags {
    /// Parses a record.
    ///
    /// # Errors
    /// The reason why it is not a tag list.
    pub fn parse(record: &[u8]) -> Result<Tags, String> {
        if record.len() > RECORD_BYTES_MAX {
            return Err(format!("longer than {RECORD_BYTES_MAX} octets"));
        }
        let text = std::str::from_utf8(record).map_err(|_| "it is not text".to_owned())?;
        let mut tags = Tags::default();
        let mut parts = text.split(';').peekable();
        while let Some(part) = parts.next() {
            if part.trim().is_empty() && parts.peek().is_none() {
                break; // the last semicolon
            }
            let (name, value) = part.split_once('=').ok_or_else(|| format!("\"{}\" is not NAME=VALUE", part.trim()))?;
            let (name, value) = (name.trim(), value.trim());
            let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic())
                && name.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'_');
            if !is_name {
                return Err(format!("\"{name}\" is not a tag name"));
            }
            if tags.get(name).is_some() {
                return Err(format!("the tag {name} is repeated"));
            }
            tags.0.push(Tag { name: name.to_owned(), value: value.to_owned() });
        }
        Ok(tags)
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|tag| tag.name == name).map(|tag| &*tag.value)
    }

    pub fn first(&self) -> Option<&Tag> {
        self.0.first()
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|tag| &*tag.name)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tags_are_parsed() {
        let tags = Tags::parse(b"v=DKIM1; k = rsa ;p=AB CD==;").unwrap();
        assert_eq!((tags.get("k"), tags.get("p"), tags.get("x")), (Some("rsa"), Some("AB CD=="), None));
        assert_eq!(tags.names().collect::<String>(), "vkp");
        for bad in ["v=1;;p=x", "v", "v=1; v=2", "=x", "1a=x", "a b=x"] {
            assert!(Tags::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(Tags::parse(&[b'a'; RECORD_BYTES_MAX + 1]).is_err());
    }

    proptest! {
        #[test]
        fn any_record_is_taken(record in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = Tags::parse(&record);
        }
    }
}
