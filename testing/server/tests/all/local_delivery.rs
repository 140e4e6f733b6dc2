//! Local delivery: `stentor-deliver` by itself and behind a server; mailboxes, locks, programs, and what happens when
//! it is away.
//!
//! As root alone: mail is delivered as users of the system. Those of every Debian are taken (`games`, `man`, `nobody`).

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use stentor_harness::{message, skipped, stentor_deliver, wait_until};
use tempfile::TempDir;

use crate::kit::{bare, drained, fates};

/// The argument by which processes of a test are found again.
fn marker(name: &str) -> String {
    format!("7{:05}.{}", std::process::id() % 100_000, name.bytes().map(u32::from).sum::<u32>())
}

/// A helper with services of its own; stopped when dropped.
pub struct Helper {
    folder: TempDir,
    child: Option<Child>,
}

impl Helper {
    /// `None` without root. `$DIR` in the services is the helper's folder, in which every user may write.
    pub fn start(services: &str) -> Option<Helper> {
        let mut helper = Helper::prepare(services)?;
        helper.run();
        Some(helper)
    }

    pub fn prepare(services: &str) -> Option<Helper> {
        if !rustix::process::getuid().is_root() {
            skipped("needs root");
            return None;
        }
        let folder = TempDir::new().expect("a temporary folder");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).expect("ours");
        let text = format!("sockets = \"$DIR/run\"\nclient = \"nobody\"\nhostname = \"mx.test\"\n{services}");
        let text = text.replace("$DIR", folder.path().to_str().expect("plain"));
        fs::write(folder.path().join("deliver.toml"), text).expect("ours");
        Some(Helper { folder, child: None })
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(stentor_deliver());
        command.arg("--config").arg(self.path("deliver.toml"));
        command
    }

    pub fn run(&mut self) {
        self.run_as(self.command());
    }

    /// The same by another command, which becomes the helper.
    pub fn run_as(&mut self, mut command: Command) {
        let log = fs::File::options().create(true).append(true).open(self.path("log")).expect("ours");
        command.stderr(log).stdin(Stdio::null());
        let _ = fs::remove_dir_all(self.path("run"));
        self.child = Some(command.spawn().expect("stentor-deliver starts"));
        // Each is nobody's until it has its owner and mode.
        let is_open = |entry: io::Result<fs::DirEntry>| {
            entry.and_then(|entry| entry.metadata()).is_ok_and(|data| data.mode() & 0o777 == 0o660)
        };
        wait_until("the sockets are there", || {
            let entries: Vec<_> = fs::read_dir(self.path("run")).into_iter().flatten().collect();
            !entries.is_empty() && entries.into_iter().all(is_open)
        });
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn socket(&self, service: &str) -> PathBuf {
        self.path(&format!("run/{service}.sock"))
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    pub fn connect(&self, service: &str) -> Lmtp {
        let mut connected = None;
        wait_until("the socket takes connections", || {
            connected = UnixStream::connect(self.socket(service)).ok();
            connected.is_some()
        });
        let mut lmtp = Lmtp { stream: BufReader::new(connected.expect("connected")) };
        assert_eq!(lmtp.reply()[..4], *"220 ");
        lmtp.command("LHLO test");
        lmtp
    }

    fn pid(&self) -> Pid {
        Pid::from_child(self.child.as_ref().expect("it runs"))
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it runs");
    }

    fn wait(&mut self) -> i32 {
        let mut child = self.child.take().expect("it runs");
        child.wait().expect("it ends").code().unwrap_or(-1)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.signal(Signal::TERM);
            self.wait();
        }
    }
}

/// A client.
pub struct Lmtp {
    stream: BufReader<UnixStream>,
}

impl Lmtp {
    /// The last line of the next reply; empty at the end of the connection.
    fn reply(&mut self) -> String {
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).expect("readable");
            if line.is_empty() || line.as_bytes()[3] == b' ' {
                return line.trim_end().to_owned();
            }
        }
    }

    pub fn command(&mut self, command: &str) -> String {
        self.stream.get_mut().write_all(format!("{command}\r\n").as_bytes()).expect("writable");
        self.reply()
    }

    /// Begins a message; the replies of those who are refused at once.
    fn begin(&mut self, to: &[&str]) -> Vec<String> {
        self.command("MAIL FROM:<ann@sender.example>");
        let replies = to.iter().map(|to| self.command(&format!("RCPT TO:<{to}>")));
        replies.filter(|reply| !reply.starts_with("250 ")).collect()
    }

    /// Delivers a message; the reply for each recipient that was accepted, then those refused at RCPT.
    pub fn send(&mut self, to: &[&str], body: &str) -> Vec<String> {
        let refused = self.begin(to);
        let accepted = to.len() - refused.len();
        if accepted > 0 {
            assert!(self.command("DATA").starts_with("354"));
            self.stream.get_mut().write_all(format!("{body}\r\n.\r\n").as_bytes()).expect("writable");
        } else {
            self.command("RSET");
        }
        let replies: Vec<String> = (0..accepted).map(|_| self.reply()).collect();
        replies.into_iter().chain(refused).collect()
    }

    pub fn send_one(&mut self, to: &str, body: &str) -> String {
        self.send(&[to], body).remove(0)
    }
}

/// Files of a Maildir's `new`.
pub fn mails(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder.join("new")) else { return Vec::new() };
    entries.map(|entry| fs::read_to_string(entry.expect("an entry").path()).expect("a text")).collect()
}

/// Command lines and states of the processes with this text in their arguments.
fn processes(text: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").expect("/proc").filter_map(Result::ok);
    let lines = entries.filter_map(|entry| {
        let line = String::from_utf8_lossy(&fs::read(entry.path().join("cmdline")).ok()?).into_owned();
        let stat = || fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        line.contains(text).then(|| format!("{line:?} {}", stat()))
    });
    lines.collect()
}

fn zombies_below(parent: Pid) -> usize {
    let entries = fs::read_dir("/proc").expect("/proc").filter_map(Result::ok);
    let states = entries.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    let wanted = format!(" Z {} ", parent.as_raw_nonzero());
    states.filter(|stat| stat.contains(&wanted)).count()
}

fn maildirs() -> &'static str {
    "[services.local]\nkind = \"maildir\"\npath = \"$DIR/${user}/Maildir\"\n"
}

/// A folder of a user's own in the helper's.
pub fn home(helper: &Helper, user: &str, uid: u32) -> PathBuf {
    let folder = helper.path(user);
    fs::create_dir(&folder).expect("ours");
    chown(&folder, Some(uid), Some(uid)).expect("as root");
    folder
}

pub fn uid_of(user: &str) -> u32 {
    let id = Command::new("id").args(["-u", user]).output().expect("id runs");
    String::from_utf8_lossy(&id.stdout).trim().parse().expect("a number")
}

#[test]
fn mail_reaches_the_users_of_the_system() {
    let Some(helper) = Helper::start(maildirs()) else { return };
    let (games, man) = (home(&helper, "games", uid_of("games")), home(&helper, "man", uid_of("man")));
    let route = format!("lmtp:unix:{}", helper.socket("local").display());
    let server = bare().fast_retry().route("home.example", &[&route]).start();
    let people = ["games+list@home.example", "Man@home.example", "no-such-user@home.example"];
    server.smtp().send("", &people, &message("1@test", "local")).expect(250);
    let ended = drained(&server);
    assert_eq!((ended.delivered, ended.bounced), (2, 1));
    let mail = mails(&games.join("Maildir")).remove(0);
    let start = "Return-Path: <>\nDelivered-To: games+list@home.example\nReceived: ";
    assert!(mail.starts_with(start) && !mail.contains('\r'), "{mail}");
    assert_eq!(mails(&man.join("Maildir")).len(), 1);
    assert_eq!(fs::metadata(games.join("Maildir/new")).unwrap().uid(), uid_of("games"));
    let sent = server.wait_log(&["stat=Sent", "games+list@home.example"]);
    assert!(sent.contains("mailer=lmtp, relay=unix:/") && sent.contains("(250 2.0.0 Delivered to Maildir)"), "{sent}");
    assert!(!sent.contains(".sock."), "a path has no final dot: {sent}");
    let refused = server.wait_log(&["no-such-user@home.example"]);
    assert!(refused.contains("dsn=5.1.1"), "{refused}");
}

#[test]
fn workers_end_with_the_helper() {
    let Some(mut helper) = Helper::start(maildirs()) else { return };
    let mut lmtp = helper.connect("local");
    helper.signal(Signal::KILL);
    helper.wait();
    // Long before the connection would have been idle for too long.
    assert_eq!(lmtp.reply(), "421 4.3.2 Shutting down");
}

#[test]
fn without_the_helper_mail_waits() {
    let Some(mut helper) = Helper::prepare(maildirs()) else { return };
    let games = home(&helper, "games", uid_of("games"));
    let route = format!("lmtp:unix:{}", helper.socket("local").display());
    let server = bare().fast_retry().route("home.example", &[&route]).start();
    server.smtp().send("", &["games@home.example"], &message("1@test", "waits")).expect(250);
    server.wait_log(&["stat=Deferred", "relay=unix:/", "No such file or directory"]);
    let check = server.operator(&["check"]);
    let said = [check.stdout, check.stderr].concat();
    assert!(
        String::from_utf8_lossy(&said).contains("does not accept connections"),
        "{}",
        String::from_utf8_lossy(&said)
    );
    // Bound, but nobody listens any more.
    helper.run();
    helper.signal(Signal::KILL);
    helper.wait();
    server.smtp().send("", &["games@home.example"], &message("2@test", "waits")).expect(250);
    server.wait_log(&["stat=Deferred", "relay=unix:/", "Connection refused"]);
    assert_eq!(fates(&server).pending, 2);
    helper.run();
    assert_eq!(drained(&server).delivered, 2);
    assert_eq!(mails(&games.join("Maildir")).len(), 2, "each once");
}

#[test]
fn the_short_forms_name_the_helper() {
    let server = bare().fast_retry().route("home.example", &["local:"]).route("t.example", &["pipe:no-such"]).start();
    server.smtp().send("", &["a@t.example"], &message("1@test", "waits")).expect(250);
    server.wait_log(&[
        "stat=Deferred",
        "relay=unix:/run/stentor-deliver/no-such.sock",
        "stentor-deliver is not running or has no service no-such",
    ]);
    let site = server.operator(&["hosts"]);
    let site = String::from_utf8_lossy(&site.stdout).into_owned();
    assert!(site.contains("unix:/run/stentor-deliver/no-such.sock"), "{site}");
}

/// Appends messages to an mbox with Python's locks, fcntl and a dotlock, as `argv[2]`, until it has appended 150.
const PYTHON_WRITER: &str = r#"
import mailbox, os, sys, time
os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
box = mailbox.mbox(sys.argv[1])
done = 0
while done < 150:
    try:
        box.lock()
    except mailbox.ExternalClashError:
        time.sleep(0.002)
        continue
    message = mailbox.mboxMessage()
    message["Subject"] = "python %d" % done
    message.set_payload("From python\n" + "p" * 3000 + "\nend\n")
    box.add(message)
    box.flush()
    box.unlock()
    done += 1
"#;

#[test]
fn an_mbox_is_shared_with_other_programs() {
    let services = "[services.local]\nkind = \"mbox\"\npath = \"$DIR/${user}/mbox\"\nlock_timeout_s = 60\n";
    let Some(helper) = Helper::start(services) else { return };
    let uid = uid_of("games");
    let mbox = home(&helper, "games", uid).join("mbox");
    let mut lmtp = helper.connect("local");
    assert_eq!(lmtp.send_one("games@x.example", "Subject: first\r\n\r\n"), "250 2.0.0 Delivered to mbox");
    let script = ["-c", PYTHON_WRITER, mbox.to_str().expect("plain"), &uid.to_string()];
    let mut python = Command::new("python3").args(script).spawn().expect("python3 runs");
    let body = format!("Subject: ours\r\n\r\nFrom us\r\n{}\r\nend\r\n", "s".repeat(4000));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut lmtp = helper.connect("local");
                for _ in 0..50 {
                    assert_eq!(lmtp.send_one("games@x.example", &body), "250 2.0.0 Delivered to mbox");
                }
            });
        }
    });
    assert!(python.wait().expect("it ends").success());
    let text = fs::read_to_string(&mbox).expect("a text");
    let messages: Vec<&str> = text.split("\n\nFrom ").collect();
    assert_eq!(messages.len(), 301);
    let whole = |start: &str, filler: &str| messages.iter().filter(|m| m.contains(start) && m.contains(filler)).count();
    let (ours, theirs) =
        (format!("\n>From us\n{}\nend\n", "s".repeat(4000)), format!("\n>From python\n{}\nend", "p".repeat(3000)));
    let ours = whole("Subject: ours\n", ours.trim_end());
    assert_eq!((ours, whole("Subject: python ", &theirs)), (150, 150), "nothing is torn");
    assert_eq!(fs::read_dir(mbox.parent().unwrap()).unwrap().count(), 1, "no lock is left");
}

/// The file of one mailbox is the lock of another: a stranger would lock out whom they like, and lose what was
/// acknowledged.
#[test]
fn no_mailbox_has_the_name_of_a_lock() {
    let services = "[services.local]\nkind = \"mbox\"\nuser = \"games\"\npath = \"$DIR/box/${user}\"\nlock_timeout_s = 1\n\
                    [services.sub]\nkind = \"mbox\"\nuser = \"games\"\npath = \"$DIR/box/${extension}\"\nlock_timeout_s = 1\n";
    let Some(helper) = Helper::start(services) else { return };
    let boxes = helper.path("box");
    fs::create_dir(&boxes).expect("ours");
    chown(&boxes, Some(uid_of("games")), None).expect("root");
    let mut lmtp = helper.connect("local");
    assert!(lmtp.send_one("ann@x.example", "Subject: 1\r\n").starts_with("250"));
    let refused = "550 5.1.1 No such mailbox: its name is that of a lock file";
    for name in ["ann.lock", "ANN.LOCK", "ann.lock.77", "\"ann.lock.\"", "\"ann.lock \"", "ann.lock.lock", "ann.lock+x"]
    {
        assert_eq!(lmtp.send_one(&format!("{name}@x.example"), "x"), refused, "{name}");
    }
    let mut sub = helper.connect("sub");
    for name in ["u+ann.lock", "u+ann.lock.1", "u+Ann.Lock"] {
        assert_eq!(sub.send_one(&format!("{name}@x.example"), "x"), refused, "{name}");
    }
    for name in ["ann.locks", "lock", "ann.lock.x"] {
        assert!(lmtp.send_one(&format!("{name}@x.example"), "x").starts_with("250"), "{name}");
    }
    assert!(lmtp.send_one("ann@x.example", "Subject: 2\r\n").starts_with("250"));
    // Mail that another program has put there stays, however old it is, and the reply names it.
    let lock = boxes.join("bob.lock");
    let mail = "From x@y Mon Nov 23 06:00:00 2026\nSubject: kept\n\nbody\n\n";
    fs::write(&lock, mail).expect("ours");
    let old = std::time::SystemTime::now() - std::time::Duration::from_hours(1);
    fs::File::open(&lock).and_then(|file| file.set_modified(old)).expect("ours");
    let reply = lmtp.send_one("bob@x.example", "x");
    assert!(
        reply.starts_with("451 4.2.0") && reply.contains("bob.lock is not a lock file but has a lock's name"),
        "{reply}"
    );
    assert_eq!(fs::read_to_string(&lock).expect("it is there"), mail);
    // And a lock that was left behind does not.
    fs::write(&lock, "").expect("ours");
    fs::File::options().write(true).open(&lock).and_then(|file| file.set_modified(old)).expect("ours");
    assert!(lmtp.send_one("bob@x.example", "x").starts_with("250"));
    assert!(!lock.exists());
}

#[test]
fn no_value_leads_a_program_out_of_its_folder() {
    let echo = script("echo", "printf '%s/' \"$@\"; exit 69", "")
        + &script("env", "printf %s \"$USER $EXTENSION\"; exit 69", "");
    let Some(helper) = Helper::start(&echo) else { return };
    let mut lmtp = helper.connect("echo");
    for name in ["\"../../../evil\"", "\"a/b\"", "\".x\"", "\"..\"", "\"u+../x\"", "\"u+.x\"", "\"/etc/x\""] {
        let reply = lmtp.send_one(&format!("{name}@x.example"), "x");
        assert_eq!(reply, "550 5.1.3 Bad address: its value could leave its folder", "{name}");
    }
    assert!(lmtp.send_one("bob@x.example", "x").ends_with(": bob//"), "an extension may be empty");
}

/// More than a variable of the environment holds.
#[test]
fn a_configuration_may_be_long() {
    let long = format!("# {}\n", "a long remark ".repeat(20_000));
    let Some(helper) = Helper::start(&(long + &script("x", "exit 67", ""))) else { return };
    assert!(helper.connect("x").send_one("a@x.example", "x").starts_with("550 5.1.1"), "{}", helper.log());
}

#[test]
fn a_full_mailbox_is_as_it_was() {
    let services = "[services.local]\nkind = \"mbox\"\npath = \"$DIR/${user}/mbox\"\n\
                    [services.dir]\nkind = \"maildir\"\npath = \"$DIR/${user}/Maildir\"\n";
    let Some(helper) = Helper::start(services) else { return };
    let folder = home(&helper, "games", uid_of("games"));
    let size = format!("size=64k,uid={}", uid_of("games"));
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", &size, "none"]).arg(&folder);
    if !mount.status().is_ok_and(|status| status.success()) {
        skipped("nothing can be mounted here");
        return;
    }
    let mut lmtp = helper.connect("local");
    assert!(lmtp.send_one("games@x.example", "Subject: fits\r\n\r\n").starts_with("250"));
    let before = fs::read(folder.join("mbox")).expect("a mailbox");
    let line = format!("{}\r\n", "x".repeat(900));
    let large = format!("Subject: large\r\n\r\n{}", line.repeat(150));
    let refused = lmtp.send_one("games@x.example", &large);
    let mut dir = helper.connect("dir");
    let refused_too = dir.send_one("games@x.example", &large);
    let after = fs::read(folder.join("mbox")).expect("a mailbox");
    let left =
        fs::read_dir(folder.join("Maildir/tmp")).map_or(0, Iterator::count) + mails(&folder.join("Maildir")).len();
    // Before anything is asserted.
    let is_unmounted = Command::new("umount").arg(&folder).status().is_ok_and(|status| status.success());
    assert!(
        refused.starts_with("452 4.2.2 Mailbox is full") && refused_too.starts_with("452 4.2.2"),
        "{refused}, {refused_too}"
    );
    assert_eq!((before, left, is_unmounted), (after, 0, true));
}

/// A service that runs `sh -c SCRIPT x USER EXTENSION` as nobody.
fn script(name: &str, script: &str, more: &str) -> String {
    format!(
        "[services.{name}]\nkind = \"program\"\nuser = \"nobody\"\ncommand = [\"/bin/sh\", \"-c\", {script:?}, \"x\", \
         \"${{user}}\", \"${{extension}}\"]\n{more}\n"
    )
}

#[test]
fn each_exit_code_has_its_reply() {
    let Some(helper) = Helper::start(&script("exit", "exit $1", "defer_exit_codes = [1, 127]")) else { return };
    let mut lmtp = helper.connect("exit");
    for code in 0..=255 {
        let reply = lmtp.send_one(&format!("{code}@x.example"), "Subject: x\r\n");
        let wanted = match code {
            0 => "250 2.0.0 ",
            1 | 71 | 75 | 127 => "451 4.3.0 ",
            65 => "554 5.6.0 ",
            67 => "550 5.1.1 ",
            68 => "554 5.1.2 ",
            73 => "554 5.2.0 ",
            76 => "554 5.5.0 ",
            77 => "554 5.7.0 ",
            78 => "554 5.3.5 ",
            _ => "554 5.3.0 ",
        };
        assert!(reply.starts_with(wanted), "{code}: {reply}");
    }
}

#[test]
fn a_program_gets_what_is_documented_and_nothing_else() {
    let print = "printf '%s;' \"$@\"; id -u; id -g; id -G; pwd; ls -m /proc/$$/fd; exit 69";
    let names =
        "env | sort | cut -d= -f1 | tr '\\n' ' '; echo $SENDER $RECIPIENT $USER $EXTENSION $DOMAIN $HOME; exit 69";
    let services =
        script("print", print, "directory = \"/usr\"") + &script("env", names, "environment = { EXTRA = \"1\" }");
    let Some(helper) = Helper::start(&services) else { return };
    let reply = helper.connect("print").send_one("\"a b;$(id)+q\"@x.example", "Subject: x\r\n");
    let wanted = "554 5.3.0 Command failed: service unavailable: a b;$(id);q;65534 65534 65534 /usr 0, 1, 2";
    assert_eq!(reply, wanted);
    let reply = helper.connect("env").send_one("\"a b;$(id)+q\"@x.example", "Subject: x\r\n");
    let wanted = "DOMAIN EXTENSION EXTRA HOME LOGNAME ORIGINAL_RECIPIENT PATH PWD RECIPIENT SENDER SHELL USER \
                  ann@sender.example _a_b___id_+q_@x.example a_b___id_ q x.example /nonexistent";
    assert!(reply.ends_with(wanted), "{reply}");
    let refused = helper.connect("env").send_one("-oQx@x.example", "Subject: x\r\n");
    assert_eq!(refused, "550 5.1.3 Bad address: its value would be read as an option");
}

#[test]
fn nothing_that_a_program_started_outlives_it() {
    let mark = marker("outlives");
    let stays = format!("setsid sleep {mark} & (setsid sh -c 'sleep {mark} & sleep {mark}' &) ; exit 0");
    let hangs = format!("trap '' TERM INT HUP; setsid setsid sleep {mark} & sleep {mark}");
    let floods = format!("sleep {mark} & exec cat /dev/zero");
    let services = script("stays", &stays, "")
        + &script("hangs", &hangs, "timeout_s = 1")
        + &script("floods", &floods, "timeout_s = 1")
        + &script("noise", "head -c 5000000 /dev/zero | tr '\\0' n; exit 75", "output_bytes_max = 10")
        + &script("dies", "kill -9 $$", "");
    let Some(helper) = Helper::start(&services) else { return };
    let send = |service: &str| helper.connect(service).send_one("a@x.example", &"x".repeat(100_000));
    assert_eq!(send("stays"), "250 2.0.0 Delivered to command /bin/sh");
    assert_eq!(send("hangs"), "451 4.3.0 Command failed: timed out after 1 s");
    assert!(send("floods").starts_with("451 4.3.0 Command failed: timed out after 1 s"));
    assert_eq!(send("noise"), "451 4.3.0 Command failed: temporary failure: nnnnnnnnnn");
    assert_eq!(send("dies"), "451 4.3.0 Command failed: ended by signal 9");
    assert_eq!(processes(&mark), Vec::<String>::new(), "all are gone when the reply is there");
    // The last worker may have ended this instant.
    wait_until("the helper has waited for its workers", || zombies_below(helper.pid()) == 0);
}

#[test]
fn a_worker_that_is_killed_leaves_nothing_behind() {
    let mark = marker("killed");
    let services = script("once", &format!("sleep {mark} & sleep {mark}"), "") + &script("true", "exit 0", "");
    let Some(helper) = Helper::start(&services) else { return };
    let mut lmtp = helper.connect("once");
    lmtp.begin(&["a@x.example"]);
    lmtp.command("DATA");
    lmtp.stream.get_mut().write_all(b"Subject: x\r\n.\r\n").expect("writable");
    wait_until("the program runs", || processes(&mark).len() >= 2);
    let children = fs::read_dir("/proc").expect("/proc").filter_map(Result::ok);
    let worker = children.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()).find(|pid| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| {
            let line = String::from_utf8_lossy(&line).into_owned();
            line.contains("--worker\0once") && line.contains(helper.folder.path().to_str().expect("plain"))
        })
    });
    kill_process(worker.and_then(Pid::from_raw).expect("a worker"), Signal::KILL).expect("it runs");
    assert_eq!(lmtp.reply(), "", "the connection ends without a reply: the server tries again");
    wait_until("what it left is killed", || processes(&mark).is_empty());
    wait_until("no zombie is left", || zombies_below(helper.pid()) == 0);
    wait_until("it is reported", || helper.log().contains("a worker ended"));
    assert!(helper.connect("true").send_one("a@x.example", "x").starts_with("250"), "others are served");
}

#[test]
fn a_stop_waits_for_the_delivery_under_way() {
    let services = script("slow", "while ! [ -e \"$GO\" ]; do sleep 0.05; done", "environment = { GO = \"$DIR/go\" }");
    let Some(mut helper) = Helper::start(&services) else { return };
    let mut lmtp = helper.connect("slow");
    lmtp.begin(&["a@x.example"]);
    lmtp.command("DATA");
    lmtp.stream.get_mut().write_all(b"Subject: x\r\n.\r\n").expect("writable");
    helper.signal(Signal::TERM);
    wait_until("no new connections", || !helper.socket("slow").exists());
    fs::write(helper.path("go"), "").expect("ours");
    assert!(lmtp.reply().starts_with("250 "));
    assert!(lmtp.reply().starts_with("421 4.3.2"));
    assert_eq!(helper.wait(), 0);
}

#[test]
fn a_new_configuration_counts_from_the_next_connection() {
    let Some(helper) = Helper::start(&script("x", "exit 75", "")) else { return };
    let mut lmtp = helper.connect("x");
    assert!(lmtp.send_one("a@x.example", "x").starts_with("451"));
    let edit = |from: &str, to: &str| {
        let text = fs::read_to_string(helper.path("deliver.toml")).expect("ours");
        fs::write(helper.path("deliver.toml"), text.replace(from, to)).expect("ours");
    };
    edit("exit 75", "exit 67");
    assert!(helper.connect("x").send_one("a@x.example", "x").starts_with("451"), "not before it is told");
    helper.signal(Signal::HUP);
    assert!(lmtp.reply().starts_with("421 "), "an idle connection is closed");
    assert!(helper.connect("x").send_one("a@x.example", "x").starts_with("550"));
    edit("kind", "kinb");
    helper.signal(Signal::HUP);
    wait_until("it is refused", || helper.log().contains("reload failed, keeping the previous configuration"));
    assert!(helper.connect("x").send_one("a@x.example", "x").starts_with("550"), "the former one is in force");
}

#[test]
fn mail_that_comes_back_is_a_loop() {
    let Some(helper) = Helper::start(maildirs()) else { return };
    let games = home(&helper, "games", uid_of("games"));
    let mut lmtp = helper.connect("local");
    let body = "Delivered-To: Games@X.example\r\nSubject: x\r\n";
    let replies = lmtp.send(&["games@x.example", "games+a@x.example"], body);
    assert!(replies[0].starts_with("554 5.4.6") && replies[1].starts_with("250"), "{replies:?}");
    assert_eq!(mails(&games.join("Maildir")).len(), 1);
}

#[test]
fn only_the_client_is_served() {
    let Some(helper) = Helper::start(maildirs()) else { return };
    let connect = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.recv(100))";
    let as_user = |uid: u32, gid: u32| -> Output {
        let mut python = Command::new("/usr/bin/env");
        python.args(["python3", "-c", connect]).arg(helper.socket("local")).uid(uid).gid(gid).current_dir("/");
        python.env("PATH", "/usr/bin:/bin").output().expect("python3 runs")
    };
    assert_eq!(fs::metadata(helper.socket("local")).unwrap().mode() & 0o777, 0o660);
    let nobody = uid_of("nobody");
    let client = as_user(nobody, nobody);
    assert!(String::from_utf8_lossy(&client.stdout).contains("220 mx.test LMTP"), "{client:?}");
    assert!(!as_user(uid_of("games"), uid_of("games")).status.success(), "the socket's mode");
    // In the group of the client, but another user.
    let other = as_user(uid_of("games"), nobody);
    assert!(String::from_utf8_lossy(&other.stdout).starts_with("b''"), "{other:?}");
    wait_until("it is reported", || helper.log().contains("closed a connection"));
}

#[test]
fn a_configuration_of_others_is_refused() {
    let Some(helper) = Helper::prepare(maildirs()) else { return };
    let check = || {
        let output = helper.command().arg("--check").output().expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(check().0, Some(0));
    let file = helper.path("deliver.toml");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("ours");
    let (code, text) = check();
    assert!(code == Some(78) && text.contains("others can write to it (mode 0666)"), "{text}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("ours");
    chown(&file, Some(uid_of("games")), None).expect("as root");
    let (code, text) = check();
    assert!(code == Some(78) && text.contains("it must belong to root"), "{text}");
}
