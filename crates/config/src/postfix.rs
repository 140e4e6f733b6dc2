//! Postfix's names of settings, for errors about unknown keys: administrators who migrate try the names of main.cf
//! first.
//!
//! docs/operate/moving.md has the same names; a test compares both with each other and with the readers.

/// Parameter of main.cf, then section and key here. An empty key means the section.
const NAMES: &[(&str, &str, &str)] = &[
    ("alias_maps", "addresses", "aliases"),
    ("always_bcc", "rules", "do"),
    ("body_checks", "rules", "body"),
    ("bounce_queue_lifetime", "retry", "bounce_lifetime_s"),
    ("canonical_maps", "addresses", "canonical"),
    ("default_destination_concurrency_limit", "delivery", "connections_per_site_max"),
    ("default_destination_rate_delay", "sites", "messages_per_second_max"),
    ("default_destination_recipient_limit", "delivery", "recipients_per_transaction_max"),
    ("default_process_limit", "listen", "connections_max"),
    ("delay_warning_time", "retry", "delay_warning_s"),
    ("disable_mime_output_conversion", "delivery", "eight_bit"),
    ("header_checks", "rules", "raw_header"),
    ("inet_interfaces", "listen", "smtp"),
    ("inet_protocols", "dns", "inet_protocols"),
    ("mailbox_transport", "routes", ""),
    ("maximal_backoff_time", "retry", "recipient_max_s"),
    ("maximal_queue_lifetime", "retry", "lifetime_s"),
    ("message_drop_headers", "rules", "do"),
    ("message_size_limit", "", "message_size_bytes_max"),
    ("minimal_backoff_time", "retry", "recipient_min_s"),
    ("mydestination", "domains", "local"),
    ("myhostname", "", "hostname"),
    ("mynetworks", "", "client_networks"),
    ("myorigin", "addresses", "origin"),
    ("postscreen_greet_wait", "listen", "greet_delay_s"),
    ("recipient_bcc_maps", "rules", "recipient"),
    ("recipient_canonical_maps", "addresses", "recipient_canonical"),
    ("reject_authenticated_sender_login_mismatch", "auth", "own_senders"),
    ("relay_clientcerts", "tls", "client_certificates"),
    ("relay_domains", "domains", "relay"),
    ("relay_recipient_maps", "rules", "recipient"),
    ("relayhost", "routes", ""),
    ("sender_bcc_maps", "rules", "sender"),
    ("sender_canonical_maps", "addresses", "sender_canonical"),
    ("sender_dependent_default_transport_maps", "routing", "sender_tables"),
    ("sender_dependent_relayhost_maps", "routing", "sender_tables"),
    ("smtp_address_preference", "sources", "address"),
    ("smtp_bind_address", "sources", "address"),
    ("smtp_bind_address6", "sources", "address"),
    ("smtp_connect_timeout", "delivery", "connect_timeout_s"),
    ("smtp_data_done_timeout", "delivery", "data_done_timeout_s"),
    ("smtp_discard_ehlo_keywords", "delivery", "chunking"),
    ("smtp_generic_maps", "addresses", "generic"),
    ("smtp_header_checks", "rules", "do"),
    ("smtp_helo_name", "sources", "ehlo_name"),
    ("smtp_helo_timeout", "delivery", "ehlo_timeout_s"),
    ("smtp_sasl_auth_enable", "smart_hosts", ""),
    ("smtp_sasl_password_maps", "smart_hosts", ""),
    ("smtp_tls_CAfile", "delivery", "tls_ca_file"),
    ("smtp_tls_policy_maps", "tls_policy", ""),
    ("smtp_tls_security_level", "delivery", "tls"),
    ("smtpd_authorized_xclient_hosts", "listen", "xclient_clients"),
    ("smtpd_client_connection_count_limit", "listen", "connections_per_client_max"),
    ("smtpd_client_connection_rate_limit", "rules", "client_rate_over"),
    ("smtpd_end_of_data_restrictions", "rules", "policy_service"),
    ("smtpd_error_sleep_time", "listen", "errors_max"),
    ("smtpd_hard_error_limit", "listen", "errors_max"),
    ("smtpd_milters", "milters", ""),
    ("smtpd_recipient_limit", "listen", "recipients_per_message_max"),
    ("smtpd_recipient_restrictions", "rules", ""),
    ("smtpd_sasl_auth_enable", "listen", "auth"),
    ("smtpd_sasl_authenticated_header", "auth", "user_in_received"),
    ("smtpd_soft_error_limit", "listen", "errors_max"),
    ("smtpd_tls_cert_file", "tls", "certificates"),
    ("smtpd_tls_chain_files", "tls", "certificates"),
    ("smtpd_tls_key_file", "tls", "certificates"),
    ("smtpd_tls_mandatory_protocols", "tls", "min_version"),
    ("smtpd_tls_protocols", "tls", "min_version"),
    ("smtpd_tls_security_level", "listen", "tls"),
    ("smtpd_tls_wrappermode", "listen", "tls"),
    ("smtpd_upstream_proxy_protocol", "listen", "proxy_clients"),
    ("submission_header_checks", "rules", "do"),
    ("tls_server_sni_maps", "tls", "certificates"),
    ("transport_maps", "routing", "tables"),
    ("virtual_alias_domains", "domains", "virtual"),
    ("virtual_alias_maps", "addresses", "virtual"),
    ("virtual_mailbox_domains", "domains", "relay"),
    ("virtual_transport", "routes", ""),
];

/// Parameters without a key here, and the reason.
const WITHOUT: &[(&str, &str)] = &[
    ("disable_vrfy_command", ALWAYS),
    ("local_recipient_maps", ALWAYS),
    ("mynetworks_style", "not needed"),
    ("queue_run_delay", "not needed"),
    ("receive_override_options", "not supported"),
    ("recipient_delimiter", "always `+`"),
    ("smtp_connection_cache_on_demand", ALWAYS),
    ("smtp_line_length_limit", "always 998"),
    ("smtp_tls_cert_file", "not supported"),
    ("smtp_tls_chain_files", "not supported"),
    ("smtp_tls_ciphers", "not needed"),
    ("smtp_tls_key_file", "not supported"),
    ("smtp_tls_loglevel", "not needed"),
    ("smtp_tls_mandatory_protocols", "not needed"),
    ("smtp_tls_protocols", "not needed"),
    ("smtp_tls_session_cache_database", "not needed"),
    ("smtpd_banner", "not supported"),
    ("smtpd_client_event_limit_exceptions", ALWAYS),
    ("smtpd_command_filter", "not supported"),
    ("smtpd_data_restrictions", ALWAYS),
    ("smtpd_discard_ehlo_keywords", "not supported"),
    ("smtpd_forbid_bare_newline", ALWAYS),
    ("smtpd_helo_required", ALWAYS),
    ("smtpd_relay_restrictions", "not needed"),
    ("smtpd_tls_auth_only", ALWAYS),
    ("smtpd_tls_ciphers", "not needed"),
    ("smtpd_tls_eecdh_grade", "not needed"),
    ("smtpd_tls_exclude_ciphers", "not needed"),
    ("smtpd_tls_loglevel", "not needed"),
    ("smtpd_tls_mandatory_ciphers", "not needed"),
    ("smtpd_tls_received_header", ALWAYS),
    ("smtpd_tls_session_cache_database", "not needed"),
    ("smtputf8_enable", ALWAYS),
    ("tls_preempt_cipherlist", "not needed"),
];
const ALWAYS: &str = "always in effect";

/// Builds a hint such as `` the Postfix parameter is `client_networks` here (docs/operate/moving.md) ``.
pub(super) fn here(key: &str) -> Option<String> {
    if let Some((_, why)) = WITHOUT.iter().find(|(name, _)| *name == key) {
        return Some(format!("the Postfix parameter is {why} here (docs/operate/moving.md)"));
    }
    let (_, section, key) = NAMES.iter().find(|(name, ..)| *name == key)?;
    let place = match (*section, *key) {
        ("", key) => format!("`{key}`"),
        // These are arrays of tables.
        (section @ ("milters" | "rules" | "tls_policy"), "") => format!("[[{section}]]"),
        (section, "") => format!("[{section}]"),
        ("listen", key @ ("tls" | "auth")) => format!("`{key}` of a listener in [listen]"),
        ("rules", key) => format!("`{key}` in [[rules]]"),
        ("sources", key) => format!("`{key}` in [sources.NAME]"),
        ("sites", key) => format!("`{key}` in [sites.\"SUFFIX\"]"),
        (section, key) => format!("`{key}` in [{section}]"),
    };
    Some(format!("the Postfix parameter is {place} here (docs/operate/moving.md)"))
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
        for (name, _) in WITHOUT {
            assert!(page.contains(&format!("`{name}")), "{name} is not in moving.md");
            assert!(!NAMES.iter().any(|(other, ..)| other == name), "{name} has a key");
        }
        let here = |name| here(name).unwrap();
        assert_eq!(here("mynetworks"), "the Postfix parameter is `client_networks` here (docs/operate/moving.md)");
        assert_eq!(
            here("relay_domains"),
            "the Postfix parameter is `relay` in [domains] here \
            (docs/operate/moving.md)"
        );
        assert_eq!(here("relayhost"), "the Postfix parameter is [routes] here (docs/operate/moving.md)");
        assert_eq!(here("smtp_line_length_limit"), "the Postfix parameter is always 998 here (docs/operate/moving.md)");
        assert_eq!(here("smtpd_milters"), "the Postfix parameter is [[milters]] here (docs/operate/moving.md)");
    }
}
