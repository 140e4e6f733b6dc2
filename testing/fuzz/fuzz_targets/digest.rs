//! Any octets as the posts of a digest: every post is in it as it was, and the size announced is the size written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_mail::digest::{Digest, DigestError, Form, Spec};

fuzz_target!(|data: &[u8]| {
    let [flags, step, bytes @ ..] = data else { return };
    let step = usize::from(*step) + 1;
    let posts: Vec<&[u8]> = bytes.split(|b| *b == 0xff).take(20).collect();
    let mut digest = Digest::new("0CX8M4H00000");
    for post in &posts {
        digest.begin_post(None);
        post.chunks(step).for_each(|piece| digest.push(piece));
    }
    let form = if flags & 1 == 0 { Form::Mime } else { Form::Plain };
    let spec = Spec { list: "dev", address: "dev@x.example", date: "", message_id: "1@x", archive: None, form };
    let plan = match digest.plan(&spec) {
        Ok(plan) => plan,
        Err(error) => return assert_eq!(error, DigestError::Boundary),
    };
    let mut out = Vec::new();
    for (no, post) in posts.iter().enumerate() {
        out.extend_from_slice(plan.before(no));
        let begin = out.len();
        let mut writer = plan.post();
        post.chunks(step + 3).for_each(|piece| writer.push(piece, &mut out));
        writer.finish(&mut out);
        assert!(form == Form::Plain || out[begin..] == **post);
    }
    out.extend_from_slice(plan.end());
    assert_eq!(out.len() as u64, plan.size());
    assert!(plan.eight_bit() || out.is_ascii());
});
