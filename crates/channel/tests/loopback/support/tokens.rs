//! A token endpoint, in as much HTTP/1.1 as it takes; and the account that it is asked for.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::LazyLock;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::TlsListener;

static KEY_PEM: LazyLock<String> = LazyLock::new(|| {
    let size = rcgen::RsaKeySize::_2048;
    rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, size).unwrap().serialize_pem()
});

/// Gives tokens to every caller, and counts them.
pub(crate) struct TokenEndpoint {
    pub(crate) listener: Rc<TlsListener>,
    pub(crate) granted: Cell<u32>,
}

impl TokenEndpoint {
    pub(crate) async fn bind() -> Rc<Self> {
        let listener = TlsListener::bind(b"http/1.1").await;
        Rc::new(Self { listener, granted: Cell::new(0) })
    }

    /// Grants each request another token, good for an hour.
    pub(crate) async fn grant_all(&self) {
        loop {
            let number = self.granted.get() + 1;
            let body = format!(r#"{{"access_token":"token-{number}","expires_in":3600}}"#);
            if self.answer(200, &body).await.is_ok() {
                self.granted.set(number);
            }
        }
    }

    /// Answers each request in the same way.
    pub(crate) async fn answer_all(&self, status: u16, body: &str) {
        loop {
            // Who has read enough may be gone.
            self.answer(status, body).await.unwrap_or_default();
        }
    }

    async fn answer(&self, status: u16, body: &str) -> std::io::Result<()> {
        let mut stream = self.listener.try_accept().await?;
        let mut request = Vec::new();
        let mut piece = [0; 4096];
        while !is_complete(&request) {
            let read = stream.read(&mut piece).await?;
            if read == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            request.extend_from_slice(&piece[..read]);
        }
        let text = String::from_utf8(request).unwrap();
        assert!(text.starts_with("POST /token HTTP/1.1\r\n"), "{text}");
        assert!(text.contains("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&"));
        let head = format!("HTTP/1.1 {status} Said\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        stream.shutdown().await
    }
}

/// Whether as much has come as the head promised.
fn is_complete(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    length.is_some_and(|length| body.len() >= length.parse().unwrap())
}

/// The JSON file of an account.
pub(crate) fn account_json() -> String {
    let account = serde_json::json!({
        "type": "service_account",
        "project_id": "shop",
        "private_key_id": "0123456789abcdef",
        "private_key": *KEY_PEM,
        "client_email": "push@shop.iam.gserviceaccount.com",
        "token_uri": "https://oauth2.googleapis.com/token",
    });
    account.to_string()
}
