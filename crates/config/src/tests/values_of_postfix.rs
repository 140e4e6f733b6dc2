//! Tests of values copied from Postfix's files.

use super::{check_here, config, findings};

/// Debian's `mynetworks`, and other values found in such files.
#[test]
fn networks_may_be_written_as_in_postfix() {
    for (text, wanted) in [
        ("[::1]/128", "::1/128"),
        ("[::ffff:127.0.0.0]/104", "127.0.0.0/8"),
        ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ("::ffff:192.0.2.1", "192.0.2.1/32"),
        ("[2001:db8::]/32", "2001:db8::/32"),
        ("[2001:db8::1]", "2001:db8::1/128"),
        ("[127.0.0.1]", "127.0.0.1/32"),
        ("10.0.0.0/8", "10.0.0.0/8"),
    ] {
        let networks = config(&format!("client_networks = [\"{text}\"]\n")).client_networks;
        assert_eq!(networks.iter().map(ToString::to_string).collect::<Vec<_>>(), [wanted], "{text}");
    }
    for text in ["[::1", "::1]/128", "[[::1]]/128", "[]/8", "[::1]128", "[::1]/129", "[::ffff:127.0.0.1]/104"] {
        assert!(check_here(&format!("client_networks = [\"{text}\"]\n")).is_err(), "{text}");
    }
    // The IPv6 form of all of IPv4 is everybody, too.
    let everyone = findings("client_networks = [\"[::ffff:0.0.0.0]/96\"]\n");
    assert!(everyone.contains("makes this server an open relay"), "{everyone}");
}

/// Reads `myorigin = /etc/mailname`.
#[test]
fn origin_may_be_a_file() {
    let folder = std::env::temp_dir().join(format!("stentor-origin-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let origin = |content: &[u8]| {
        let file = folder.join("mailname");
        std::fs::write(&file, content).unwrap();
        let text = format!("[addresses]\norigin = \"{}\"\n", file.display());
        check_here(&text).map(|config| config.rules.addresses.origin.to_string())
    };
    for content in ["Home.example\n", "\n# the name\n  home.example  \nother.example\n", "home.example"] {
        assert_eq!(origin(content.as_bytes()).as_deref(), Ok("home.example"), "{content:?}");
    }
    for content in [&b""[..], b"# nothing\n", b"two words\n", b"\xff\xfe", &[b'a'; 10_000]] {
        let found = origin(content).unwrap_err();
        assert!(found.contains("`origin` is read as a file because it contains `/`, and `"), "{found}");
    }
    let missing = findings("[addresses]\norigin = \"/no/such/file\"\n");
    assert!(missing.contains("`/no/such/file` cannot be read: "), "{missing}");
    for relative in ["etc/mailname", "./mailname", "mailname/"] {
        let found = findings(&format!("[addresses]\norigin = \"{relative}\"\n"));
        assert!(
            found.contains(":2:10: ") && found.contains("relative paths start at the configuration's directory"),
            "{found}"
        );
    }
    let short = findings("[addresses]\norigin = \"mailname\"\n");
    assert!(short.contains(":2:10: ") && short.contains("is not a fully qualified domain"), "{short}");
    std::fs::remove_dir_all(&folder).unwrap();
}
