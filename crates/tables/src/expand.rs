//! Expands `%0` to `%9` in the values of sendmail's tables: `%0` is the key that was found, `%1` and so on are the
//! owner's arguments ([`crate::candidates::Candidate::arguments`]). `%%` is a percent sign.

/// Replaces `out` by the expanded value. A missing argument is empty.
pub fn expand(value: &[u8], key: &[u8], arguments: &[&[u8]], out: &mut Vec<u8>) {
    out.clear();
    let mut rest = value.iter();
    while let Some(&octet) = rest.next() {
        if octet != b'%' {
            out.push(octet);
            continue;
        }
        match rest.next() {
            Some(b'0') => out.extend_from_slice(key),
            Some(digit @ b'1'..=b'9') => {
                out.extend_from_slice(arguments.get(usize::from(digit - b'1')).copied().unwrap_or_default());
            }
            Some(b'%') | None => out.push(b'%'),
            Some(&other) => out.extend_from_slice(&[b'%', other]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        let expanded = |value: &str| {
            let mut out = b"old".to_vec();
            expand(value.as_bytes(), b"@example.com", &[b"user", b"detail"], &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(expanded("%1+%2@%3x %0"), "user+detail@x @example.com");
        assert_eq!(expanded("100%% %s %"), "100% %s %");
    }
}
