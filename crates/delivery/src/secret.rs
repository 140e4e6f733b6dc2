//! Reads the secret of a smart host: the first line of a file, or of a command's output.
//!
//! Promise: the secret is reread each time, and buffers are wiped; at most [`SECRET_BYTES_MAX`] are read. A command's
//! output is read while it runs, so that it may write any amount, and its time is limited to [`COMMAND_MS_MAX`]. Child
//! processes that still hold its output when it ends are not waited for.
//!
//! Failure: the error never includes the secret, only [`STDERR_CHARS_MAX`] of a failed command's standard error.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use stentor_oauth::SecretSource;
use stentor_records::escape::printable;
use stentor_sasl::Secret;
use stentor_sasl::limits::TOKEN_BYTES_MAX;
use zeroize::Zeroizing;

/// Maximum octets of a secret: as long as a token may be.
const SECRET_BYTES_MAX: usize = TOKEN_BYTES_MAX;
/// Time limit of a command; it may have to request a new token.
const COMMAND_MS_MAX: u64 = 30_000;
/// Interval between checks whether a command has ended.
const COMMAND_LOOK: Duration = Duration::from_millis(20);
/// Characters shown of a command's standard error.
const STDERR_CHARS_MAX: usize = 200;
/// Octets read from a pipe at once.
const READ_BYTES: usize = 4096;

/// Reads the first line of the source. Blocks.
pub(super) fn read(source: &SecretSource) -> Result<Secret, String> {
    let octets = match source {
        SecretSource::File(path) => of_file(path)?,
        SecretSource::Command(words) => of_command(words)?,
    };
    let line = octets.split(|&b| b == b'\n' || b == b'\r').next().unwrap_or_default();
    if line.is_empty() {
        return Err("the secret is empty".to_owned());
    }
    if line.len() > SECRET_BYTES_MAX {
        return Err("the secret is longer than 8,192 octets".to_owned());
    }
    Secret::from_utf8(line).ok_or_else(|| "the secret is not UTF-8".to_owned())
}

fn of_file(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let failed = |error| format!("{} cannot be read: {error}", path.display());
    let file = File::open(path).map_err(failed)?;
    let mut octets = buffer(SECRET_BYTES_MAX + 1);
    file.take(SECRET_BYTES_MAX as u64 + 1).read_to_end(&mut octets).map_err(failed)?;
    Ok(octets)
}

/// Allocates a buffer that never grows, since growing would leave a copy behind.
fn buffer(bytes_max: usize) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(Vec::with_capacity(bytes_max + 64))
}

fn of_command(words: &[String]) -> Result<Zeroizing<Vec<u8>>, String> {
    let [program, arguments @ ..] = words else { return Err("the command is empty".to_owned()) };
    let failed = |what: &dyn std::fmt::Display| format!("{program}: {what}");
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(&error))?;
    let mut pipes = [
        Output::new(child.stdout.take().map(OwnedFd::from), SECRET_BYTES_MAX + 1),
        Output::new(child.stderr.take().map(OwnedFd::from), 4 * STDERR_CHARS_MAX),
    ];
    let ended = run(&mut child, &mut pipes, Instant::now() + Duration::from_millis(COMMAND_MS_MAX));
    let [stdout, stderr] = pipes;
    match ended {
        Ok(status) if status.success() => Ok(stdout.kept),
        Ok(status) => {
            let said: String = String::from_utf8_lossy(&stderr.kept).trim().chars().take(STDERR_CHARS_MAX).collect();
            let said = if said.is_empty() { said } else { format!(": {}", printable(&said, 4 * STDERR_CHARS_MAX)) };
            Err(failed(&format_args!("{status}{said}")))
        }
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(failed(&error))
        }
    }
}

/// Waits for the command, and reads everything that it wrote until it ended.
fn run(child: &mut Child, pipes: &mut [Output; 2], until: Instant) -> io::Result<ExitStatus> {
    loop {
        read_ready(pipes, COMMAND_LOOK)?;
        if let Some(status) = child.try_wait()? {
            while read_ready(pipes, Duration::ZERO)? && Instant::now() < until {}
            return Ok(status);
        }
        if Instant::now() >= until {
            return Err(io::Error::new(ErrorKind::TimedOut, "no answer in time"));
        }
    }
}

/// Reads what arrives within this time. Returns whether anything did.
fn read_ready(pipes: &mut [Output; 2], wait: Duration) -> io::Result<bool> {
    let (files, mut open): (Vec<&File>, Vec<usize>) =
        pipes.iter().zip(0..).filter_map(|(output, at)| Some((output.pipe.as_ref()?, at))).unzip();
    if files.is_empty() {
        std::thread::sleep(wait);
        return Ok(false);
    }
    let mut polled: Vec<PollFd<'_>> = files.into_iter().map(|file| PollFd::new(file, PollFlags::IN)).collect();
    let wait = Timespec { tv_sec: wait.as_secs().cast_signed(), tv_nsec: wait.subsec_nanos().into() };
    match poll(&mut polled, Some(&wait)) {
        Err(rustix::io::Errno::INTR) => return Ok(true),
        result => result?,
    };
    let mut ready = polled.iter().map(|fd| !fd.revents().is_empty());
    open.retain(|_| ready.next() == Some(true));
    for at in &open {
        pipes[*at].read()?;
    }
    Ok(!open.is_empty())
}

/// A command's output through a pipe: the beginning is kept, the rest read and dropped.
struct Output {
    /// `None`: the output has ended.
    pipe: Option<File>,
    kept: Zeroizing<Vec<u8>>,
    bytes_max: usize,
}

impl Output {
    fn new(pipe: Option<OwnedFd>, bytes_max: usize) -> Output {
        Output { pipe: pipe.map(File::from), kept: buffer(bytes_max), bytes_max }
    }

    /// Reads once.
    fn read(&mut self) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        let mut octets = Zeroizing::new([0; READ_BYTES]);
        match pipe.read(&mut octets[..]) {
            Ok(0) => self.pipe = None,
            Ok(read) => {
                let kept = read.min(self.bytes_max - self.kept.len());
                self.kept.extend_from_slice(&octets[..kept]);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(words: &[&str]) -> SecretSource {
        SecretSource::Command(words.iter().map(|word| (*word).to_owned()).collect())
    }

    fn shell(script: &str) -> Result<String, String> {
        text(&command(&["/bin/sh", "-c", script]))
    }

    fn text(source: &SecretSource) -> Result<String, String> {
        read(source).map(|secret| secret.expose().to_owned())
    }

    #[test]
    fn a_secret_is_the_first_line_of_its_source() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        for (line, expected) in [("s3cret\n", "s3cret"), ("s3cret", "s3cret"), ("s3 cret\r\nnot this\n", "s3 cret")] {
            std::fs::write(&file, line).unwrap();
            assert_eq!(text(&SecretSource::File(file.clone())).as_deref(), Ok(expected));
        }
        std::fs::write(&file, "\ns3cret").unwrap();
        assert_eq!(text(&SecretSource::File(file.clone())), Err("the secret is empty".to_owned()));
        std::fs::remove_file(&file).unwrap();
        assert!(text(&SecretSource::File(file)).unwrap_err().contains("cannot be read: No such file"));
        assert_eq!(text(&command(&["/bin/echo", "tok en"])).as_deref(), Ok("tok en"));
        assert!(text(&command(&["/bin/false"])).unwrap_err().contains("/bin/false: exit status: 1"));
        assert!(text(&command(&["/nonexistent"])).is_err());
    }

    #[test]
    fn a_secret_is_never_cut() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        let long = "x".repeat(SECRET_BYTES_MAX);
        std::fs::write(&file, format!("{long}\n{long}\n")).unwrap();
        assert_eq!(text(&SecretSource::File(file.clone())).as_deref(), Ok(&*long));
        std::fs::write(&file, format!("{long}x\n")).unwrap();
        let too_long = Err("the secret is longer than 8,192 octets".to_owned());
        assert_eq!(text(&SecretSource::File(file.clone())), too_long);
        assert_eq!(text(&command(&["/bin/cat", file.to_str().unwrap()])), too_long);
    }

    /// Both outputs exceed a pipe's capacity: neither may wait for the other.
    #[test]
    fn a_command_may_print_what_it_likes() {
        let much = "head -c 300000 /dev/zero";
        assert_eq!(shell(&format!("echo s3cret; {much}; {much} >&2")).as_deref(), Ok("s3cret"));
        let error = shell(&format!("echo s3cret; printf 'no \\033[1mtoken\\n' >&2; {much} >&2; exit 3")).unwrap_err();
        assert!(error.starts_with("/bin/sh: exit status: 3: no \\x1b[1mtoken") && !error.contains("s3cret"), "{error}");
        assert!(error.len() < 1_000, "{error}");
    }

    #[test]
    fn what_goes_on_behind_a_command_is_not_waited_for() {
        assert_eq!(shell("sleep 60 & echo s3cret").as_deref(), Ok("s3cret"));
    }
}
