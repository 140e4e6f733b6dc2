//! Rotation of DKIM keys (docs/operate/dkim.md): a name server whose zone the test changes, kills between all steps,
//! and a command that publishes records.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stentor_harness::{Builder, Server, wait_until};

use crate::kit::drained;
use crate::scribe::Scribe;

const AUTHOR: &str = "ann@example.org";
const DOMAIN: &str = "example.org";
/// Port of DNS, which only root may use.
const DNS_PORT: u16 = 53;
const A: u16 = 1;
const NS: u16 = 2;
const SOA: u16 = 6;
const TXT: u16 = 16;

/// A name server that reads its TXT records from a zone file at each query, as `stentor dkim show` prints them. Where
/// the test may use port 53, it is also the one name server of the zone, so that the server asks it as an authority.
struct NameServer {
    address: SocketAddr,
    zone: PathBuf,
}

impl NameServer {
    fn start(folder: &Path) -> NameServer {
        let zone = folder.join("dns.zone");
        std::fs::write(&zone, "").unwrap();
        let random = || fastrand::u8(1..255);
        let own = Ipv4Addr::new(127, random(), random(), random());
        let authority = UdpSocket::bind((own, DNS_PORT)).ok();
        let resolver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = resolver.local_addr().unwrap();
        let served = Arc::new(ServedZone { path: zone.clone(), authority: authority.as_ref().map(|_| own) });
        for socket in authority.into_iter().chain([resolver]) {
            let served = served.clone();
            std::thread::spawn(move || {
                let mut packet = [0; 1_500];
                while let Ok((len, peer)) = socket.recv_from(&mut packet) {
                    if let Some(reply) = served.reply(&packet[..len]) {
                        let _ = socket.send_to(&reply, peer);
                    }
                }
            });
        }
        NameServer { address, zone }
    }

    fn publish(&self, zone: &str) {
        let new = self.zone.with_extension("new");
        std::fs::write(&new, zone).unwrap();
        std::fs::rename(&new, &self.zone).unwrap();
    }
}

struct ServedZone {
    path: PathBuf,
    authority: Option<Ipv4Addr>,
}

struct Question {
    name: String,
    kind: u16,
    /// Its octets in the query.
    end: usize,
}

fn question(query: &[u8]) -> Option<Question> {
    let (mut at, mut labels) = (12, Vec::new());
    loop {
        let len = usize::from(*query.get(at)?);
        at += 1;
        if len == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(query.get(at..at + len)?).to_ascii_lowercase());
        at += len;
    }
    let kind = u16::from_be_bytes(*query.get(at..)?.first_chunk()?);
    Some(Question { name: labels.join("."), kind, end: at + 4 })
}

impl ServedZone {
    fn reply(&self, query: &[u8]) -> Option<Vec<u8>> {
        let Question { name, kind, end } = question(query)?;
        let data = self.data(&name, kind);
        // QR, AA, RD, RA.
        let mut reply = [&query[..2], &[0x85, 0x80, 0, 1, 0, u8::from(data.is_some()), 0, 0, 0, 0]].concat();
        reply.extend(&query[12..end]);
        if let Some(data) = data {
            record(&mut reply, &[0xc0, 12], kind, &data);
        } else {
            reply[9] = 1;
            record(&mut reply, &[0], SOA, &soa());
        }
        Some(reply)
    }

    fn data(&self, name: &str, kind: u16) -> Option<Vec<u8>> {
        match (kind, self.authority) {
            (SOA, _) if name == DOMAIN => Some(soa()),
            (NS, Some(_)) if name == DOMAIN => Some(b"\x02ns\x07example\x03org\0".to_vec()),
            (A, Some(address)) if name == "ns.example.org" => Some(address.octets().to_vec()),
            (TXT, _) => {
                let zone = std::fs::read_to_string(&self.path).unwrap();
                let line = zone.lines().find(|line| line.starts_with(&format!("{name}. IN TXT")))?;
                let strings = line.split('"').skip(1).step_by(2);
                Some(strings.flat_map(|text| [&[text.len() as u8], text.as_bytes()].concat()).collect())
            }
            _ => None,
        }
    }
}

fn record(reply: &mut Vec<u8>, owner: &[u8], kind: u16, data: &[u8]) {
    reply.extend(owner);
    reply.extend([kind.to_be_bytes(), 1_u16.to_be_bytes()].concat());
    // A TTL of one second.
    reply.extend(1_u32.to_be_bytes());
    reply.extend((data.len() as u16).to_be_bytes());
    reply.extend(data);
}

/// Names at the root, and a negative TTL of one second.
fn soa() -> Vec<u8> {
    let numbers = [1_u32, 60, 60, 60, 1].map(u32::to_be_bytes).concat();
    [vec![0, 0], numbers].concat()
}

struct Scene {
    host: Scribe,
    names: NameServer,
    server: Server,
    _folder: tempfile::TempDir,
}

impl Scene {
    /// `publish`: makes the keys that publish, from the path of the zone.
    fn start(publish: impl FnOnce(&Path) -> String) -> Scene {
        let host = Scribe::start(&["PIPELINING", "8BITMIME"], &[]);
        let folder = tempfile::tempdir().unwrap();
        let names = NameServer::start(folder.path());
        let builder: Builder = Server::builder()
            .set("dns.servers", &format!("[\"{}\"]", names.address))
            .set("dns.loopback_allowed", "true")
            .set("retry.lifetime_s", "5")
            .route("host.example", &[&host.host()]);
        let server = builder.prepare();
        let publish = publish(&names.zone);
        server.edit_config(|text| {
            format!(
                "{text}\n[[dkim]]\ndomain = \"{DOMAIN}\"\nrotate_days = 30\npublish_wait_s = 1\nretire_wait_s = 1\n\
                 {publish}\n"
            )
        });
        Scene { host, names, server: server.run(), _folder: folder }
    }

    /// What `stentor dkim show` prints.
    fn records(&self) -> String {
        let shown = self.server.operator(&["dkim", "show"]);
        assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
        String::from_utf8(shown.stdout).unwrap()
    }

    #[track_caller]
    fn wait_records(&self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        let mut records = String::new();
        wait_until(what, || {
            records = self.records();
            holds(&records)
        });
        records
    }

    fn kill(&mut self) {
        self.server.kill();
        self.server.start_again();
    }

    /// Sends mail; the selectors of its signatures.
    fn selectors(&self) -> Vec<String> {
        let wire = format!("From: {AUTHOR}\r\nSubject: x\r\n\r\nHello\r\n");
        let before = self.host.contents().len();
        self.server.smtp().send(AUTHOR, &["bob@host.example"], wire.as_bytes()).expect(250);
        wait_until("the copy arrives", || self.host.contents().len() > before);
        drained(&self.server);
        let content = String::from_utf8(self.host.contents().pop().unwrap()).unwrap();
        let header = content.split("\r\n\r\n").next().unwrap().replace("\r\n", "").replace('\t', " ");
        let signatures = header.split("DKIM-Signature:").skip(1);
        let selector = |text: &str| text.split(" s=").nth(1).unwrap().split(';').next().unwrap().trim().to_owned();
        signatures.map(selector).collect()
    }

    /// Waits until mail is signed by this pair; until then by `before`.
    #[track_caller]
    fn wait_signed(&self, selector: &str, before: &[String]) {
        wait_until("the new key signs", || {
            let selectors = self.selectors();
            assert!(selectors == both(selector) || selectors == before, "{selectors:?}");
            selectors == both(selector)
        });
    }

    fn has_key_file(&self, selector: &str) -> bool {
        self.server.path("data/dkim").join(format!("{DOMAIN}.{selector}.pem")).exists()
    }
}

fn both(selector: &str) -> Vec<String> {
    vec![selector.to_owned(), format!("{selector}-ed25519")]
}

/// Selectors of the pairs whose records must be in the zone.
fn pairs(records: &str) -> Vec<String> {
    let of_line = |line: &str| line.split_once("._domainkey.").map(|(selector, _)| selector.to_owned());
    let wanted = records.lines().filter(|line| !line.starts_with(';')).filter_map(of_line);
    wanted.filter(|selector| !selector.ends_with("-ed25519")).collect()
}

#[test]
fn keys_are_made_used_once_published_and_replaced_through_crashes() {
    let mut scene = Scene::start(|_| String::new());
    let records = scene.wait_records("the first pair", |records| records.lines().count() == 2);
    let [first] = &pairs(&records)[..] else { panic!("{records}") };
    assert_eq!(scene.selectors(), [""; 0], "its records are not published");
    scene.kill();
    assert_eq!(scene.records(), records, "the same keys after a crash");
    wait_until("a warning", || scene.server.operator_text(&["doctor"]).contains("DKIM record not published"));

    // One of two records is not enough.
    scene.names.publish(records.lines().next().unwrap());
    let why = "no record for the Ed25519 key";
    wait_until("the look-up", || scene.server.operator_text(&["dkim", "show", "--text"]).contains(why));
    assert_eq!(scene.selectors(), [""; 0]);
    scene.kill();
    scene.names.publish(&records);
    scene.wait_signed(first, &[]);
    scene.kill();
    assert_eq!(scene.selectors(), both(first), "from the first message after a crash on");
    wait_until("no warning", || !scene.server.operator_text(&["doctor"]).contains("DKIM record"));

    // A new pair, while the old one signs.
    let text = scene.server.operator_text(&["dkim", "rotate", DOMAIN]);
    assert!(text.contains("waits for its records"), "{text}");
    let records = scene.records();
    let [_, second] = &pairs(&records)[..] else { panic!("{records}") };
    scene.kill();
    assert_eq!(scene.records(), records);
    assert!(scene.server.operator_text(&["dkim", "rotate", DOMAIN]).contains("is waiting already"));
    assert_eq!(scene.selectors(), both(first));
    scene.names.publish(&records);
    scene.wait_signed(second, &both(first));
    assert!(scene.has_key_file(first));
    scene.kill();
    assert_eq!(scene.selectors(), both(second));
    let removable = format!("; remove {first}._domainkey.{DOMAIN}. TXT");
    let records = scene.wait_records("the old record may go", |records| records.contains(&removable));
    assert_eq!(pairs(&records), [second.as_str()]);
    scene.kill();
    assert!(scene.records().contains(&removable));
    scene.names.publish(&records);
    scene.wait_records("the old pair is gone", |records| !records.contains(&removable));
    assert!(!scene.has_key_file(first) && scene.has_key_file(second));

    // A compromised key: its record may go as soon as the new one is used.
    scene.server.operator_text(&["dkim", "rotate", DOMAIN, "--now"]);
    let records = scene.records();
    let third = pairs(&records).pop().unwrap();
    assert_ne!(third, *second);
    scene.kill();
    assert_eq!(scene.selectors(), both(second));
    scene.names.publish(&records);
    scene.wait_signed(&third, &both(second));
    assert!(scene.records().contains(&format!("; remove {second}._domainkey.{DOMAIN}. TXT")));
}

#[test]
fn a_command_publishes_records_so_that_keys_replace_themselves() {
    let scene = Scene::start(|zone| {
        let script = format!("cat > {0}.part && mv {0}.part {0}", zone.display());
        format!("publish_command = [\"/bin/sh\", \"-c\", \"{script}\"]")
    });
    wait_until("mail is signed", || !scene.selectors().is_empty());
    let records = scene.records();
    let [first] = &pairs(&records)[..] else { panic!("{records}") };
    assert_eq!(scene.selectors(), both(first));
    scene.server.operator_text(&["dkim", "rotate", DOMAIN]);
    let records = scene.wait_records("the old pair is gone", |records| {
        pairs(records).len() == 1 && !pairs(records).contains(first) && !records.contains("; remove")
    });
    let [second] = &pairs(&records)[..] else { panic!("{records}") };
    assert_eq!(scene.selectors(), both(second));
    assert!(!scene.has_key_file(first));
}

#[test]
fn keys_in_files_sign_until_the_first_own_key_is_used() {
    let scene = Scene::start(|zone| {
        let folder = zone.parent().unwrap();
        let made = std::process::Command::new(stentor_harness::stentor())
            .args(["dkim", "new", DOMAIN, "--selector", "old", "--rsa", "--dir"])
            .arg(folder)
            .output()
            .unwrap();
        assert!(made.status.success());
        format!("selector = \"old\"\nkey = \"{}\"", folder.join(format!("{DOMAIN}.old.pem")).display())
    });
    assert_eq!(scene.selectors(), ["old"]);
    let records = scene.wait_records("the first pair", |records| records.lines().count() == 3);
    let [old, first] = &pairs(&records)[..] else { panic!("{records}") };
    assert_eq!(old, "old");
    scene.names.publish(&records);
    scene.wait_signed(first, &["old".to_owned()]);
    let unknown = scene.server.operator(&["dkim", "rotate", "elsewhere.example"]);
    assert_eq!(unknown.status.code(), Some(3), "nothing matches");
}

#[test]
fn a_lost_key_refuses_the_start_and_can_be_replaced() {
    let mut scene = Scene::start(|_| String::new());
    let records = scene.wait_records("the first pair", |records| records.lines().count() == 2);
    let [first] = &pairs(&records)[..] else { panic!("{records}") };
    scene.names.publish(&records);
    scene.wait_signed(first, &[]);
    scene.server.kill();
    std::fs::remove_file(scene.server.path("data/dkim").join(format!("{DOMAIN}.{first}.pem"))).unwrap();
    let refused = scene.server.try_start_as(scene.server.command());
    assert!(refused.is_err_and(|log| log.contains("there is no such file; restore it from a backup")));

    // As the message says: without `rotate_days`, then with it again.
    let config = std::fs::read_to_string(scene.server.config()).unwrap();
    scene.server.edit_config(|text| text.split("[[dkim]]").next().unwrap().to_owned());
    scene.server.start_again();
    assert_eq!(scene.selectors(), [""; 0]);
    scene.server.edit_config(|_| config);
    assert!(scene.server.operator(&["reload"]).status.success());
    wait_until("a problem", || scene.server.operator_text(&["doctor"]).contains("mail is not signed with them"));
    scene.server.operator_text(&["dkim", "rotate", DOMAIN]);
    let records = scene.wait_records("another pair", |records| pairs(records).len() == 2);
    scene.names.publish(&records);
    scene.wait_signed(&pairs(&records)[1], &[]);
}
