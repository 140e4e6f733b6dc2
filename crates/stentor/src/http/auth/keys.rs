//! Secrets: how they are made, hashed and compared; `stentor http-password` and `stentor http-token`.

use std::io::{BufRead, IsTerminal, Write};
use std::process::ExitCode;

use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use argon2::{Argon2, Params};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::Args;
use sha2::{Digest, Sha256};

use crate::cli::fail;

/// Memory that checking a configured password may take, KiB.
const MEMORY_KIB_MAX: u32 = 256 * 1024;
/// Passes over it.
const PASSES_MAX: u32 = 64;
const PASSWORD_CHARS_MIN: usize = 10;

pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Compares in a time that does not depend on where two secrets differ.
pub fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

/// Octets that nobody can guess.
///
/// # Panics
/// If the system has no random numbers: nothing here would be safe then.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    bytes
}

/// A secret as text without characters that need quoting.
pub fn random_text() -> String {
    URL_SAFE_NO_PAD.encode(random::<32>())
}

/// An argon2id hash with the parameters that OWASP recommends (19 MiB, two passes).
pub fn hash(password: &str) -> Result<String, String> {
    let salt = SaltString::encode_b64(&random::<16>()).map_err(|error| error.to_string())?;
    let hash = Argon2::default().hash_password(password.as_bytes(), &salt).map_err(|error| error.to_string())?;
    Ok(hash.to_string())
}

/// What is wrong with a configured hash, if anything.
pub fn check_hash(text: &str) -> Result<(), String> {
    let hash = PasswordHash::new(text).map_err(|error| error.to_string())?;
    if hash.algorithm.as_str() != "argon2id" || hash.hash.is_none() || hash.salt.is_none() {
        return Err("only complete argon2id hashes are taken".to_owned());
    }
    let params = Params::try_from(&hash).map_err(|error| error.to_string())?;
    if params.m_cost() > MEMORY_KIB_MAX || params.t_cost() > PASSES_MAX {
        return Err(format!("it asks for more than {MEMORY_KIB_MAX} KiB of memory or {PASSES_MAX} passes"));
    }
    Ok(())
}

pub fn verify(password: &str, hash: &str) -> bool {
    let Ok(hash) = PasswordHash::new(hash) else { return false };
    Argon2::default().verify_password(password.as_bytes(), &hash).is_ok()
}

pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A SHA-256 as the configuration has it.
pub fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    let mut bytes = [0; 32];
    if digits.len() != 64 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = (digit(0)? * 16 + digit(1)?) as u8;
    }
    Some(bytes)
}

/// Arguments of `stentor http-token`.
#[derive(Args)]
pub struct NewToken {
    /// What audit records call whoever has it.
    name: String,
    /// For reading alone.
    #[arg(long)]
    read_only: bool,
}

/// Prints a new token and what to put into the configuration.
pub fn token_command(new: &NewToken) -> ExitCode {
    let token = random_text();
    let prefix = if new.read_only { "read-only " } else { "" };
    eprintln!("The token; it is not shown again and kept nowhere:");
    println!("{token}");
    eprintln!("For the configuration:");
    println!("[http]\ntokens = {{ {} = \"{prefix}sha256:{}\" }}", new.name, hex(&sha256(token.as_bytes())));
    ExitCode::SUCCESS
}

/// Reads a password and prints its hash.
pub fn password_command() -> ExitCode {
    let asked = if std::io::stdin().is_terminal() { ask_twice() } else { read_line() };
    let password = match asked {
        Ok(password) => password,
        Err(why) => return fail(&why),
    };
    if password.chars().count() < PASSWORD_CHARS_MIN {
        return fail(&format!("a password has at least {PASSWORD_CHARS_MIN} characters"));
    }
    match hash(&password) {
        Ok(hash) => {
            println!("{hash}");
            ExitCode::SUCCESS
        }
        Err(why) => fail(&why),
    }
}

fn ask_twice() -> Result<String, String> {
    let stdin = std::io::stdin();
    let old = rustix::termios::tcgetattr(&stdin).map_err(|error| error.to_string())?;
    let mut silent = old.clone();
    silent.local_modes.remove(rustix::termios::LocalModes::ECHO);
    let set = |modes| rustix::termios::tcsetattr(&stdin, rustix::termios::OptionalActions::Flush, modes);
    set(&silent).map_err(|error| error.to_string())?;
    let ask = |what: &str| {
        eprint!("{what}: ");
        let _ = std::io::stderr().flush();
        let line = read_line();
        eprintln!();
        line
    };
    let answers = ask("Password").and_then(|first| Ok((first, ask("Again")?)));
    set(&old).map_err(|error| error.to_string())?;
    match answers? {
        (first, second) if first == second => Ok(first),
        _ => Err("the two are not the same".to_owned()),
    }
}

fn read_line() -> Result<String, String> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(|error| error.to_string())?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
