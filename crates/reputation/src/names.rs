//! Host names.

/// Maximum length of a DNS name as text.
pub(crate) const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// Whether a name is a host name, as in Postfix: `_` is allowed, and a name of digits only is an address.
pub(crate) fn is_host_name(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=LABEL_BYTES_MAX).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    let is_number = name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    name.len() <= NAME_BYTES_MAX && !is_number && name.split('.').all(is_label)
}

pub(crate) fn is_fqdn(name: &str) -> bool {
    name.contains('.') && is_host_name(name)
}
