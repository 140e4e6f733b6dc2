//! Files that mail decisions need and that no user can read, because they do not exist or are not regular files:
//! errors of `stentor check`, each at its key.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use stentor_config::settings::Settings;
use stentor_config::{Config, Diagnostic, Severity};

/// Whether there is no such file, nor, for a symbolic link, its target. A file that this user may not look up is not
/// missing: the server's user may.
pub(crate) fn is_missing(path: &Path) -> bool {
    let kind = fs::metadata(path).err().map(|error| error.kind());
    matches!(kind, Some(ErrorKind::NotFound | ErrorKind::NotADirectory))
}

/// Whether no user could read a file there: it is missing, or a directory, device or pipe, which the server never
/// opens.
pub(crate) fn is_not_regular_file(path: &Path) -> bool {
    is_missing(path) || fs::metadata(path).is_ok_and(|data| !data.is_file())
}

/// Raises warnings about subscribers files that no user could read to errors. The server still starts with them: other
/// lists' mail must not wait.
pub(crate) fn raise_subscribers(config: &Config, settings: &Settings, warnings: &mut [Diagnostic]) {
    for list in config.lists.iter().filter(|list| list.subscribers.as_deref().is_some_and(is_not_regular_file)) {
        let section = format!("lists.{}", list.list.name());
        let Some(at) = settings.position(&section, "subscribers") else { continue };
        let about = warnings.iter_mut().find(|found| (found.line, found.column) == (at.line, at.column));
        if let Some(found) = about {
            found.severity = Severity::Error;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(folder: &Path, text: &str) -> Vec<String> {
        let file = folder.join("stentor.toml");
        // No test asks the system's name servers.
        let common = "[listen]\nsmtp = \"127.0.0.1:0\"\n[http]\nlisten = []\n[dns]\nservers = [\"127.0.0.1:9\"]\n";
        fs::write(&file, format!("{text}{common}")).unwrap();
        let (mut config, settings) = stentor_config::check_noting(&file).unwrap_or_else(|found| panic!("{found:?}"));
        let mut found = std::mem::take(&mut config.warnings);
        raise_subscribers(&config, &settings, &mut found);
        found.extend(crate::trial::run(&config, &settings).findings);
        let is_other = |text: &String| {
            ["name server", "hostname \"", "has no `", "no listener", "postmaster"].iter().any(|one| text.contains(one))
        };
        let shown = found.iter().map(|found| found.to_string().replace(&format!("{}/", folder.display()), ""));
        shown.filter(|text| !is_other(text)).collect()
    }

    #[test]
    fn a_missing_file_is_an_error_at_its_key_whatever_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["file", "aliases"] {
            fs::write(folder.path().join(name), "all: :include:/nowhere/members\n").unwrap();
        }
        std::os::unix::fs::symlink("nowhere", folder.path().join("link")).unwrap();
        let table = |source: &str, used: &str| format!("[tables.t]\nsource = \"{source}\"\n{used}");
        let rule = "[[rules]]\nsender = \"table:t\"\n";
        let aliases = "as = \"aliases\"\n[addresses]\naliases = \"t\"\n";
        let list = |file: &str| format!("[lists.l]\naddress = \"l@x.example\"\nsubscribers = \"{file}\"\n");
        for (text, expected) in [
            (table("hash:gone", rule), "stentor.toml:2:10: table t: gone cannot be read: "),
            (table("hash:nowhere/gone", rule), "stentor.toml:2:10: table t: nowhere/gone cannot be read: "),
            (table("hash:file/gone", rule), "stentor.toml:2:10: table t: file/gone cannot be read: "),
            (table("hash:link", rule), "stentor.toml:2:10: table t: link cannot be read: "),
            (table("regexp:gone", rule), "stentor.toml:2:10: table t: gone cannot be read: "),
            (table("aliases:gone", aliases), "stentor.toml:2:10: table t: gone cannot be read: "),
            (table("aliases:aliases", aliases), "aliases:1:1: /nowhere/members cannot be read: "),
            (list("gone"), "stentor.toml:3:15: subscribers file `gone` cannot be read: "),
            (list("file/gone"), "stentor.toml:3:15: subscribers file `file/gone` cannot be read: "),
            ("[log]\nattempts = \"gone/log\"\n".to_owned(), "stentor.toml:2:12: the directory gone does not exist"),
            (
                "[log]\nattempts = \"file/log/x\"\n".to_owned(),
                "stentor.toml:2:12: the directory file/log does not exist",
            ),
            ("[log]\nbulk = \"gone/log\"\n".to_owned(), "stentor.toml:2:8: the directory gone does not exist"),
            ("[control]\nsocket = \"gone/sock\"\n".to_owned(), "stentor.toml:2:10: the directory gone does not exist"),
            ("[auth]\nusers = \"gone\"\n".to_owned(), "stentor.toml:2:9: gone does not exist, "),
        ] {
            let found = findings(folder.path(), &text);
            assert!(found.len() == 1 && found[0].starts_with(expected), "{text}{found:#?}");
        }
    }

    #[test]
    fn a_path_that_is_not_a_regular_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("members"), "all: :include:/\n").unwrap();
        let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        fs::create_dir(&cert).unwrap();
        fs::create_dir(&key).unwrap();
        let rule = "[[rules]]\nsender = \"table:t\"\n";
        let aliases = "as = \"aliases\"\n[addresses]\naliases = \"t\"\n";
        let list = "[lists.l]\naddress = \"l@x.example\"\nsubscribers = ";
        for (text, expected) in [
            (format!("[tables.t]\nsource = \"hash:/\"\n{rule}"), "stentor.toml:2:10: table t: / cannot be read: "),
            (format!("[tables.t]\nsource = \"pcre:/\"\n{rule}"), "stentor.toml:2:10: table t: / cannot be read: "),
            (format!("[tables.t]\nsource = \"aliases:members\"\n{aliases}"), "members:1:1: / cannot be read: "),
            (format!("{list}\"/\"\n"), "stentor.toml:3:15: subscribers file `/` cannot be read: not a regular file"),
            (format!("{list}\"/dev/null\"\n"), "stentor.toml:3:15: subscribers file `/dev/null` cannot be read: "),
            ("[auth]\nusers = \"/\"\n".to_owned(), "stentor.toml:2:9: "),
        ] {
            let found = findings(folder.path(), &text);
            assert!(found.len() == 1 && found[0].starts_with(expected), "{text}{found:#?}");
            assert!(!found[0].contains("warning: "), "{text}{found:#?}");
        }
        let found = findings(folder.path(), "[[tls.certificates]]\nchain = \"cert.pem\"\nkey = \"key.pem\"\n");
        assert!(found.iter().any(|one| one.contains("cert.pem") && !one.contains("warning: ")), "{found:#?}");
    }

    #[test]
    fn entries_in_the_configuration_have_their_columns() {
        let folder = tempfile::tempdir().unwrap();
        let text = "[tables.t]\nas = \"access\"\ninline = { \"a@x.example\" = \"OK\", \"b@x.example\" = \"FROB x\" }\n\
                    [[rules]]\nsender = \"table:t\"\n";
        let found = findings(folder.path(), text);
        assert!(
            found.len() == 1 && found[0].starts_with("stentor.toml:3:34: warning: mail for this key"),
            "{found:#?}"
        );
    }

    #[test]
    fn what_nothing_uses_is_named_at_its_line() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("routes"), "x.example hop:b\n").unwrap();
        let text = "[tables.t]\nsource = \"hash:routes\"\n[hops]\na = \"192.0.2.1\"\nb = \"192.0.2.2\"\n";
        let found = findings(folder.path(), text);
        assert!(found[0].starts_with("stentor.toml:2:10: warning: table t is never looked up: "), "{found:#?}");
        assert!(found.len() == 2 && found[1].starts_with("stentor.toml:4:"), "{found:#?}");
        assert!(found[1].contains(": warning: hop a is never used: "), "{found:#?}");
    }
}
