//! Answers the cases of `conformance/` about encrypted files: JSON lines in, JSON lines out.
//!
//! `sealer < cases > answers`. What a case and an answer hold is said in `conformance/README.md`.
#![allow(clippy::print_stderr, reason = "a program of its own, for judges")]

use std::{
    io::{self, BufRead, Write},
    process::ExitCode,
};

use ichor_sops::{Flaw, Format, Identity, Policy, Recipient, Rule, Sealed, Tree, identities, seal};
use serde_json::{Value, json};

fn main() -> ExitCode {
    match answer_all() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sealer: {error}");
            ExitCode::from(2)
        }
    }
}

fn answer_all() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let case: Value = serde_json::from_str(&line?)?;
        let mut answer = answer(&case).unwrap_or_else(|flaw| {
            json!({ "error": flaw.problem.message, "kind": format!("{:?}", flaw.kind), "line": flaw.line })
        });
        answer["name"] = case["name"].clone();
        writeln!(out, "{answer}")?;
    }
    Ok(())
}

fn answer(case: &Value) -> Result<Value, Flaw> {
    let text = |key: &str| case[key].as_str().unwrap_or_default();
    let format = Format::of_name(text("file"));
    let when = text("when");
    let entropy: &mut dyn FnMut(&mut [u8]) =
        &mut |buffer| aws_lc_rs::rand::fill(buffer).expect("this machine has random bytes");
    let file = match text("do") {
        "seal" => {
            let plain = Tree::parse(text("text").as_bytes(), format)?;
            let policy = Policy {
                recipients: recipients(case)?,
                rule: Rule::of_key(text("rule"), text("rule_text")).unwrap_or_default(),
                mac_only_encrypted: case["mac_only_encrypted"] == true,
            };
            seal(&plain, format, &policy, when, entropy)?
        }
        other => {
            let sealed = Sealed::parse(text("text").as_bytes(), format)?;
            let opened = sealed.open(&own(case)?)?;
            match other {
                "open" => {
                    let (plain, json) =
                        (opened.plain().to_text(format), opened.plain().to_text(Format::Json));
                    return Ok(json!({ "text": plain.as_str(), "json": json.as_str() }));
                }
                "add" => opened.add(&recipients(case)?, entropy)?,
                "rotate" => opened.rotate(&recipients(case)?, when, entropy)?,
                _ => opened.reseal(&Tree::parse(text("plain").as_bytes(), format)?, when, entropy)?,
            }
        }
    };
    Ok(json!({ "text": file.to_text() }))
}

fn recipients(case: &Value) -> Result<Vec<Recipient>, Flaw> {
    let all = case["recipients"].as_array().into_iter().flatten();
    all.map(|text| Recipient::parse(text.as_str().unwrap_or_default())).collect()
}

fn own(case: &Value) -> Result<Vec<Identity>, Flaw> {
    let mut own = identities(case["identities"].as_str().unwrap_or_default())?;
    if let Some(pem) = case["ssh"].as_str() {
        own.push(Identity::from_ssh(pem)?);
    }
    Ok(own)
}
