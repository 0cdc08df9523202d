//! Tests: requests through proxies that work, refuse or are not there.

#![allow(clippy::unwrap_used)]

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::{
    ModelConfig,
    remote::RemoteModel,
    server_tests::{API, FINISH, STREAM, delta, page, story},
    test_requests::{http, model_at},
};

/// A model somewhere else, where one variable names a proxy.
fn model_behind(url: &str, variable: &str, proxy: &str) -> RemoteModel {
    let model = model_at(API, url, ModelConfig::default());
    let env = |name: &str| (name == variable).then(|| proxy.to_owned());
    RemoteModel { http: http(std::time::Duration::from_secs(300), &env).into(), ..model }
}

async fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

/// Reads until the head of a request is over.
async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !String::from_utf8_lossy(&head).contains("\r\n\r\n") {
        assert_ne!(stream.read_buf(&mut head).await.unwrap(), 0);
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test]
async fn a_proxy_that_is_not_there_is_named_and_not_the_server() {
    for (variable, url, scheme) in [
        ("HTTP_PROXY", "http://model.example/v1", "http"),
        ("https_proxy", "https://model.example/v1", "http"),
        ("ALL_PROXY", "https://model.example/v1", "socks5h"),
    ] {
        let (listener, address) = listener().await;
        drop(listener);
        let model = model_behind(url, variable, &format!("{scheme}://user:pass-0123@{address}"));
        let said = story(&model).await;
        let expected = format!(
            " | Connection: p/m: cannot connect to the proxy {scheme}://{address} (from {variable}): "
        );
        assert!(said.starts_with(&expected), "{said}");
        assert!(said.ends_with(&format!(
            ". Is that proxy right? To go without it, unset {variable} or name the server's host in \
             NO_PROXY."
        )));
        assert!(!said.contains("pass-0123"), "{said}");
    }
}

#[tokio::test]
async fn a_proxy_that_says_no_is_named() {
    let (listener, address) = listener().await;
    for (url, answer, expected) in [
        (
            "https://model.example/v1",
            "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n".to_owned(),
            "Connection: p/m: the proxy PROXY makes no connection to https://model.example/v1: tunnel error: proxy authorization required.",
        ),
        (
            "http://model.example/v1",
            page("407 Proxy Authentication Required", "", "<title>Log in</title>"),
            "Status(407): p/m answered 407 Proxy Authentication Required: a web page, “Log in”. The proxy wants a user and a password: http://USER:PASSWORD@HOST:PORT. It came through the proxy PROXY.",
        ),
        (
            "http://model.example/v1",
            page("502 Bad Gateway", "", "no route"),
            "Status(502): p/m answered 502 Bad Gateway: no route. This often passes: try again. It came through the proxy PROXY.",
        ),
    ] {
        let model = model_behind(url, "ALL_PROXY", &address);
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            head(&mut stream).await;
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
            // Until the client has read it.
            let _ = stream.read(&mut [0; 1024]).await;
        };
        let (said, ()) = tokio::join!(story(&model), serve);
        let expected = expected.replace("PROXY", &format!("http://{address} (from ALL_PROXY)"));
        assert!(said.starts_with(&format!(" | {expected}")), "{said}");
    }
}

/// A SOCKS server for one connection: whom it was asked for, after which it is the model's server.
async fn socks(listener: &TcpListener, answer: u8) -> String {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut greeting = [0; 2];
    stream.read_exact(&mut greeting).await.unwrap();
    let mut methods = vec![0; greeting[1].into()];
    stream.read_exact(&mut methods).await.unwrap();
    let wants_password = methods.contains(&2);
    stream.write_all(&[5, if wants_password { 2 } else { 0 }]).await.unwrap();
    let mut asked = String::new();
    if wants_password {
        let mut version = [0];
        stream.read_exact(&mut version).await.unwrap();
        asked = format!("{}:{}@", counted(&mut stream).await, counted(&mut stream).await);
        stream.write_all(&[1, 0]).await.unwrap();
    }
    let mut connect = [0; 4];
    stream.read_exact(&mut connect).await.unwrap();
    assert_eq!(connect, [5, 1, 0, 3], "a name, to be resolved by the proxy");
    asked += &counted(&mut stream).await;
    asked += &format!(":{}", stream.read_u16().await.unwrap());
    stream.write_all(&[5, answer, 0, 1, 127, 0, 0, 1, 0, 80]).await.unwrap();
    if answer == 0 {
        head(&mut stream).await;
        stream.write_all([STREAM, &delta("ok"), FINISH].concat().as_bytes()).await.unwrap();
    }
    asked
}

async fn counted(stream: &mut TcpStream) -> String {
    let mut text = vec![0; stream.read_u8().await.unwrap().into()];
    stream.read_exact(&mut text).await.unwrap();
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn a_socks_proxy_works() {
    for (user, expected) in
        [("", "model.example:80"), ("me:pass-0123@", "me:pass-0123@model.example:80")]
    {
        let (listener, address) = listener().await;
        let proxy = format!("socks5h://{user}{address}");
        let model = model_behind("http://model.example/v1", "all_proxy", &proxy);
        let (said, asked) = tokio::join!(story(&model), socks(&listener, 0));
        assert_eq!((said.as_str(), asked.as_str()), ("text ok | Stop", expected));
    }
}

#[tokio::test]
async fn a_socks_proxy_that_says_no_is_named() {
    let (listener, address) = listener().await;
    let model =
        model_behind("http://model.example/v1", "ALL_PROXY", &format!("socks5h://{address}"));
    let (said, _) = tokio::join!(story(&model), socks(&listener, 2));
    let expected = format!(
        " | Connection: p/m: the proxy socks5h://{address} (from ALL_PROXY) makes no connection to \
         http://model.example/v1: SOCKS error: "
    );
    assert!(said.starts_with(&expected), "{said}");
}
