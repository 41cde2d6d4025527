//! A file in a request: `multipart/form-data` as Proxmox reads it.
//!
//! Its reader is simple: parts in order, nothing after the file is looked at, and the file's part must be called
//! `filename`.

use std::fmt;

use sha2::{Digest, Sha256};

/// A file on its way. What it holds is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Upload {
    filename: String,
    bytes: Vec<u8>,
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upload({}, {} bytes)", self.filename, self.bytes.len())
    }
}

impl Upload {
    /// Makes an upload. The name is written as Proxmox keeps it.
    pub fn new(filename: &str, bytes: &[u8]) -> Self {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '_' };
        Self { filename: filename.chars().map(plain).collect(), bytes: bytes.to_vec() }
    }

    /// Returns the checksum of its bytes.
    pub fn sha256(&self) -> String {
        Sha256::digest(&self.bytes).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the content type of the body.
    pub fn content_type(&self, params: &[(String, String)]) -> String {
        format!("multipart/form-data; boundary={}", self.boundary(params))
    }

    /// Returns the body: the parameters, then the file.
    pub fn body(&self, params: &[(String, String)]) -> Vec<u8> {
        let boundary = self.boundary(params);
        let mut body = Vec::with_capacity(self.bytes.len() + 1024);
        for (key, value) in params {
            let part =
                format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{key}\"\r\n\r\n{value}\r\n");
            body.extend(part.bytes());
        }
        let head = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"filename\"; filename=\"{}\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n",
            self.filename
        );
        body.extend(head.bytes());
        body.extend(&self.bytes);
        body.extend(format!("\r\n--{boundary}--\r\n").bytes());
        body
    }

    /// A text that occurs nowhere else in the body: the checksum of what is in it, which cannot be in it.
    fn boundary(&self, params: &[(String, String)]) -> String {
        let mut hasher = Sha256::new();
        hasher.update(&self.bytes);
        for (key, value) in params {
            hasher.update(key.as_bytes());
            hasher.update(value.as_bytes());
        }
        let digest = hasher.finalize();
        let word: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        format!("ichor-{word}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_come_before_the_file() {
        let upload = Upload::new("a b\".iso", b"\r\n--bytes\0\xff");
        let params = [("content".to_owned(), "iso".to_owned())];
        let kind = upload.content_type(&params);
        let boundary = kind.strip_prefix("multipart/form-data; boundary=").expect("a boundary");
        let expected = [
            format!("--{boundary}\r\nContent-Disposition: form-data; name=\"content\"\r\n\r\niso\r\n")
                .as_bytes(),
            format!(
                "--{boundary}\r\nContent-Disposition: form-data; name=\"filename\"; filename=\"a_b_.iso\"\r\n"
            )
            .as_bytes(),
            b"Content-Type: application/octet-stream\r\n\r\n\r\n--bytes\0\xff",
            format!("\r\n--{boundary}--\r\n").as_bytes(),
        ]
        .concat();
        assert_eq!(upload.body(&params), expected);
    }

    #[test]
    fn what_is_uploaded_is_not_shown() {
        assert_eq!(format!("{:?}", Upload::new("cp-1.iso", b"secret")), "Upload(cp-1.iso, 6 bytes)");
    }
}
