//! Tag lists, `a=b; c=d` (RFC 6376 section 3.2): signatures, key records and DMARC records.

/// Maximum tags of a list; the longest known ones have some 15.
const TAGS_MAX: usize = 64;

struct Tag {
    name: String,
    value: String,
}

/// The tags of a list, each at most once.
pub struct TagList(Vec<Tag>);

impl TagList {
    /// Parses a list, which may be folded. `None`: a tag has no name or value, occurs twice, or there are too many.
    pub fn parse(text: &[u8]) -> Option<TagList> {
        let text = String::from_utf8_lossy(text);
        let mut tags: Vec<Tag> = Vec::new();
        for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=')?;
            let (name, value) = (name.trim_end(), value.trim_start());
            let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic())
                && name.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'_');
            if !is_name || tags.len() == TAGS_MAX || tags.iter().any(|tag| tag.name == name) {
                return None;
            }
            tags.push(Tag { name: name.to_owned(), value: value.to_owned() });
        }
        Some(TagList(tags))
    }

    /// Returns the value of a tag.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|tag| tag.name == name).map(|tag| &*tag.value)
    }

    /// Returns the value without white space, for tags in which it has no meaning.
    pub fn compact(&self, name: &str) -> Option<String> {
        Some(self.value(name)?.split_ascii_whitespace().collect())
    }

    /// Name of the first tag: `v` in records with a version.
    pub fn first(&self) -> Option<&str> {
        self.0.first().map(|tag| &*tag.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_faults_found() {
        let tags = TagList::parse(b" v = DKIM1 ;\r\n\tb= ab\r\n cd; empty=; x_1=a=b;").unwrap();
        assert_eq!((tags.first(), tags.value("v")), (Some("v"), Some("DKIM1")));
        assert_eq!((tags.compact("b").as_deref(), tags.value("empty")), (Some("abcd"), Some("")));
        assert_eq!((tags.value("x_1"), tags.value("V")), (Some("a=b"), None));
        let many: Vec<String> = (0..=TAGS_MAX).map(|n| format!("t{n}=1")).collect();
        let many = many.join(";");
        for wrong in ["a", "a=1;a=2", "=1", "1a=1", "a b=1", &many] {
            assert!(TagList::parse(wrong.as_bytes()).is_none(), "{wrong}");
        }
    }
}
