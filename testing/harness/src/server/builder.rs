//! Builds a configuration, call by call.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::Server;
use crate::TestLab;

/// Collects settings; values are TOML. A later value of a key replaces an earlier one.
pub struct Builder {
    /// By section; the empty name is the top of the file.
    sections: BTreeMap<String, BTreeMap<String, String>>,
    files: Vec<(String, Vec<u8>)>,
    folder: Option<PathBuf>,
}

/// A TOML string.
fn quote(text: &str) -> String {
    format!("{text:?}")
}

fn array(texts: &[&str]) -> String {
    format!("[{}]", texts.iter().map(|text| quote(text)).collect::<Vec<_>>().join(", "))
}

impl Default for Builder {
    /// Any free port, small segments, the host name `mx.test`, trusted: 127.0.0.1 alone.
    fn default() -> Builder {
        Builder { sections: BTreeMap::new(), files: Vec::new(), folder: None }
            .set("hostname", "\"mx.test\"")
            .set("data_dir", "\"data\"")
            .set("client_networks", "[\"127.0.0.1\"]")
            .set("listen.smtp", "[\"127.0.0.1:0\"]")
            .set("http.listen", "[]")
            .set("journal.segment_bytes", "2097152")
            .set("journal.batch_bytes_max", "1048576")
            .set("journal.reserve_bytes", "0")
            // Nothing answers there: without a lab no name is found.
            .set("dns.servers", "[\"127.0.0.1:9\"]")
    }
}

impl Builder {
    /// Sets `section.key` (or a top-level `key`) to a TOML value. Keys with dots need [`Builder::set_in`].
    pub fn set(self, key: &str, value: &str) -> Builder {
        let (section, key) = key.rsplit_once('.').unwrap_or(("", key));
        self.set_in(section, key, value)
    }

    /// Sets a key of a section (`lists.news`, or `aliases` with a quoted key) to a TOML value.
    pub fn set_in(mut self, section: &str, key: &str, value: &str) -> Builder {
        self.sections.entry(section.to_owned()).or_default().insert(key.to_owned(), value.to_owned());
        self
    }

    /// Takes names from the lab's DNS and delivers to its hosts.
    pub fn lab(self, lab: &TestLab) -> Builder {
        self.set("dns.servers", &array(&[&lab.dns().to_string()]))
            .set("dns.loopback_allowed", "true")
            .set("delivery.smtp_port", &lab.smtp_port().to_string())
    }

    /// Clocks of a fraction of a second, reports at once.
    pub fn fast_retry(self) -> Builder {
        let clocks = ["host", "site", "mailbox", "recipient"];
        let builder = clocks.iter().fold(self, |builder, clock| {
            builder.set(&format!("retry.{clock}_min_s"), "0.1").set(&format!("retry.{clock}_max_s"), "0.4")
        });
        builder.set("retry.bounce_gather_ms", "50")
    }

    /// A list `NAME@lists.test` with these subscribers, in the file `NAME.subscribers`.
    pub fn list(self, name: &str, subscribers: &[&str]) -> Builder {
        let mut text = subscribers.join("\n");
        text.push('\n');
        self.list_with_file(name, text.as_bytes())
    }

    /// A list with this subscribers file.
    pub fn list_with_file(self, name: &str, octets: &[u8]) -> Builder {
        let file = format!("{name}.subscribers");
        self.set(&format!("lists.{name}.address"), &quote(&format!("{name}@lists.test")))
            .set(&format!("lists.{name}.subscribers"), &quote(&file))
            .file(&file, octets)
    }

    pub fn alias(self, address: &str, targets: &[&str]) -> Builder {
        self.set_in("aliases", &quote(address), &array(targets))
    }

    pub fn route(self, pattern: &str, hosts: &[&str]) -> Builder {
        self.set_in("routes", &quote(pattern), &array(hosts))
    }

    /// A file beside the configuration.
    pub fn file(mut self, name: &str, octets: &[u8]) -> Builder {
        self.files.push((name.to_owned(), octets.to_vec()));
        self
    }

    /// A folder of the test's own instead of a temporary one (a small file system, say).
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Builder {
        self.folder = Some(folder.into());
        self
    }

    /// The configuration as a file's text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (section, keys) in &self.sections {
            if !section.is_empty() {
                text += &format!("\n[{section}]\n");
            }
            for (key, value) in keys {
                text += &format!("{key} = {value}\n");
            }
        }
        text
    }

    /// Writes the files and starts the server; returns when it listens.
    #[track_caller]
    pub fn start(self) -> Server {
        let server = self.prepare();
        server.run()
    }

    /// Writes the files without starting anything.
    pub fn prepare(self) -> Server {
        let text = self.text();
        Server::prepare(&text, &self.files, self.folder)
    }
}
