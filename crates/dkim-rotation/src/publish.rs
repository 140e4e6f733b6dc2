//! Runs `publish_command`, which gets the records as zone text on its standard input.
//!
//! Promise: no shell; the time is limited to [`COMMAND_MAX`], after which the program is killed. It need not read its
//! input. Its output is dropped, and of its standard error [`STDERR_BYTES_MAX`] are shown if it fails.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use stentor_records::escape::printable;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tokio::time::timeout;

/// Time limit: it may have to talk to a provider's interface.
const COMMAND_MAX: Duration = Duration::from_mins(1);
/// How long standard error is read after the program has ended, if a child of it still holds it.
const STDERR_GRACE: Duration = Duration::from_secs(1);
/// Octets shown of standard error.
const STDERR_BYTES_MAX: usize = 200;

/// Why records were not published.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    #[error("`publish_command` is empty")]
    Empty,
    #[error("{program}: {source}")]
    Run { program: String, source: std::io::Error },
    #[error("{program}: {status}{stderr}")]
    Failed { program: String, status: ExitStatus, stderr: String },
    #[error("{program}: still running after {} s; it was killed", COMMAND_MAX.as_secs())]
    Late { program: String },
}

/// Runs the command to its end.
pub async fn publish(words: &[String], zone: &str) -> Result<(), PublishError> {
    run(words, zone, COMMAND_MAX).await
}

async fn run(words: &[String], zone: &str, limit: Duration) -> Result<(), PublishError> {
    let [program, arguments @ ..] = words else { return Err(PublishError::Empty) };
    let failed = |source| PublishError::Run { program: program.clone(), source };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A program that does not read its input has closed the pipe.
            let _ = stdin.write_all(zone.as_bytes()).await;
        }
    };
    let mut shown = Vec::new();
    let mut complain = Box::pin(keep_beginning(stderr, &mut shown));
    let mut is_read = false;
    let ended = timeout(limit, async {
        let fed_and_ended = async { tokio::join!(feed, child.wait()).1 };
        tokio::pin!(fed_and_ended);
        loop {
            tokio::select! {
                status = &mut fed_and_ended => return status,
                () = &mut complain, if !is_read => is_read = true,
            }
        }
    });
    let status = match ended.await {
        Ok(status) => status.map_err(failed)?,
        Err(_) => return Err(PublishError::Late { program: program.clone() }),
    };
    if !is_read {
        let _ = timeout(STDERR_GRACE, &mut complain).await;
    }
    drop(complain);
    if status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&shown);
    let text = text.trim();
    let stderr = if text.is_empty() { String::new() } else { format!(": {}", printable(text, 4 * STDERR_BYTES_MAX)) };
    Err(PublishError::Failed { program: program.clone(), status, stderr })
}

/// Keeps the beginning of an output, and drops the rest, so that the program never waits for its reader.
async fn keep_beginning(output: Option<impl AsyncRead + Unpin>, kept: &mut Vec<u8>) {
    let Some(mut output) = output else { return };
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = output.read(&mut buffer).await {
        let room = STDERR_BYTES_MAX.saturating_sub(kept.len());
        kept.extend_from_slice(&buffer[..read.min(room)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Vec<String> {
        ["/bin/sh", "-c", script].map(str::to_owned).to_vec()
    }

    #[tokio::test]
    async fn the_program_gets_the_records_on_its_input() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("zone");
        let zone = "s1._domainkey.x.example. IN TXT ( \"v=DKIM1\" )\n".repeat(3_000);
        publish(&shell(&format!("cat > {}", file.display())), &zone).await.unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), zone);
        // More than a pipe holds, and nobody reads it.
        publish(&shell("exit 0"), &zone).await.unwrap();
    }

    #[tokio::test]
    async fn a_failure_is_shown_and_time_is_limited() {
        let error =
            publish(&shell("printf 'no \\033[1maccess\\n' >&2; head -c 300000 /dev/zero >&2; exit 3"), "").await;
        let text = error.unwrap_err().to_string();
        assert!(text.starts_with("/bin/sh: exit status: 3: no \\x1b[1maccess") && text.len() < 1_200, "{text}");
        assert!(matches!(publish(&["/nonexistent".to_owned()], "").await, Err(PublishError::Run { .. })));
        assert!(matches!(publish(&[], "").await, Err(PublishError::Empty)));
        let late = run(&shell("sleep 600"), "", Duration::from_millis(50)).await;
        assert!(matches!(late, Err(PublishError::Late { .. })), "{late:?}");
        publish(&shell("sleep 600 & exit 0"), "").await.unwrap();
    }
}
