//! Postfix's names for settings, for the error about a key that is none here: whoever moves tries the names of main.cf first.
//!
//! As docs/operate/moving.md has them; a test holds both sides to each other and to the readers.

/// Parameter of main.cf; section and key here. Without a key it is the section.
const NAMES: &[(&str, &str, &str)] = &[
    ("alias_maps", "addresses", "aliases"),
    ("always_bcc", "rules", "do"),
    ("body_checks", "rules", "body"),
    ("bounce_queue_lifetime", "retry", "lifetime_s"),
    ("canonical_maps", "addresses", "canonical"),
    ("default_destination_concurrency_limit", "delivery", "connections_per_site_max"),
    ("delay_warning_time", "retry", "delay_warning_s"),
    ("header_checks", "rules", "raw_header"),
    ("inet_interfaces", "listen", "smtp"),
    ("mailbox_transport", "routes", ""),
    ("maximal_queue_lifetime", "retry", "lifetime_s"),
    ("message_size_limit", "", "message_size_bytes_max"),
    ("mydestination", "domains", "local"),
    ("myhostname", "", "hostname"),
    ("mynetworks", "", "client_networks"),
    ("myorigin", "addresses", "origin"),
    ("recipient_bcc_maps", "rules", "recipient"),
    ("recipient_canonical_maps", "addresses", "recipient_canonical"),
    ("relay_clientcerts", "tls", "client_certificates"),
    ("relay_domains", "domains", "relay"),
    ("relay_recipient_maps", "rules", "recipient"),
    ("relayhost", "routes", ""),
    ("sender_bcc_maps", "rules", "sender"),
    ("sender_canonical_maps", "addresses", "sender_canonical"),
    ("sender_dependent_default_transport_maps", "routing", "sender_tables"),
    ("sender_dependent_relayhost_maps", "routing", "sender_tables"),
    ("smtp_bind_address", "sources", "address"),
    ("smtp_bind_address6", "sources", "address"),
    ("smtp_generic_maps", "addresses", "generic"),
    ("smtp_helo_name", "sources", "ehlo_name"),
    ("smtp_sasl_auth_enable", "smart_hosts", ""),
    ("smtp_sasl_password_maps", "smart_hosts", ""),
    ("smtp_tls_CAfile", "delivery", "tls_ca_file"),
    ("smtp_tls_policy_maps", "tls_policy", ""),
    ("smtp_tls_security_level", "delivery", "tls"),
    ("smtpd_authorized_xclient_hosts", "listen", "xclient_clients"),
    ("smtpd_milters", "milters", ""),
    ("smtpd_recipient_limit", "listen", "recipients_per_message_max"),
    ("smtpd_recipient_restrictions", "rules", ""),
    ("smtpd_sasl_auth_enable", "listen", "auth"),
    ("smtpd_sasl_authenticated_header", "auth", "user_in_received"),
    ("smtpd_tls_cert_file", "tls", "certificates"),
    ("smtpd_tls_chain_files", "tls", "certificates"),
    ("smtpd_tls_key_file", "tls", "certificates"),
    ("smtpd_tls_security_level", "listen", "tls"),
    ("smtpd_tls_wrappermode", "listen", "tls"),
    ("smtpd_upstream_proxy_protocol", "listen", "proxy_clients"),
    ("transport_maps", "routing", "tables"),
    ("virtual_alias_domains", "domains", "virtual"),
    ("virtual_alias_maps", "addresses", "virtual"),
    ("virtual_mailbox_domains", "domains", "relay"),
    ("virtual_transport", "routes", ""),
];

/// `` that of Postfix is `client_networks` here (docs/operate/moving.md) ``
pub(super) fn here(key: &str) -> Option<String> {
    let (_, section, key) = NAMES.iter().find(|(name, ..)| *name == key)?;
    let place = match (*section, *key) {
        ("", key) => format!("`{key}`"),
        // An array of tables.
        (section @ ("milters" | "rules" | "tls_policy"), "") => format!("[[{section}]]"),
        (section, "") => format!("[{section}]"),
        ("listen", key @ ("tls" | "auth")) => format!("`{key}` of a listener in [listen]"),
        ("rules", key) => format!("`{key}` in [[rules]]"),
        ("sources", key) => format!("`{key}` in [sources.NAME]"),
        (section, key) => format!("`{key}` in [{section}]"),
    };
    Some(format!("that of Postfix is {place} here (docs/operate/moving.md)"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::tests::known_keys;
    use super::*;

    #[test]
    fn each_name_is_on_the_page_and_leads_to_a_key() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operate/moving.md");
        let page = fs::read_to_string(path).unwrap();
        let known = known_keys();
        let is_known = |section: &str, name: &str| {
            known.iter().any(|known| match known.split_once('.') {
                None => section.is_empty() && known == name,
                Some((of, rest)) => of == section && rest.rsplit('.').next() == Some(name),
            })
        };
        for (name, section, key) in NAMES {
            assert!(page.contains(&format!("`{name}")), "{name} is not in moving.md");
            let is_there = if key.is_empty() { is_known("", section) } else { is_known(section, key) };
            assert!(is_there, "{name}: no key {key:?} in [{section}]: {known:?}");
            assert!(!is_known("", name), "{name} is a key of ours");
        }
        let here = |name| here(name).unwrap();
        assert_eq!(here("mynetworks"), "that of Postfix is `client_networks` here (docs/operate/moving.md)");
        assert_eq!(here("relay_domains"), "that of Postfix is `relay` in [domains] here (docs/operate/moving.md)");
        assert_eq!(here("relayhost"), "that of Postfix is [routes] here (docs/operate/moving.md)");
        assert_eq!(here("smtpd_milters"), "that of Postfix is [[milters]] here (docs/operate/moving.md)");
    }
}
