//! Tasks that speak with each other through two stacks.

#![allow(missing_docs, reason = "a test's name says what it is about")]

use std::net::SocketAddr;
use std::time::Duration;

use stack_runtime::device::pair;
use stack_runtime::{Options, Stack};
use stack_tokio::{TcpListener, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, split};

fn stacks() -> (Stack, Stack, SocketAddr) {
    let (a, b) = pair(1500).unwrap();
    let a = Stack::start(a, Options::new("a")).unwrap();
    let b = Stack::start(b, Options::new("b")).unwrap();
    a.wait_for_address(Duration::from_secs(10)).unwrap();
    let address = b.wait_for_address(Duration::from_secs(10)).unwrap();
    (a, b, (address, 7).into())
}

#[tokio::test]
async fn a_hundred_tasks_get_back_what_they_send() {
    let (a, b, server) = stacks();
    let listener = TcpListener::bind(&b, server).unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut input, mut output) = split(client);
                copy(&mut input, &mut output).await.unwrap();
                output.shutdown().await.unwrap();
            });
        }
    });
    let tasks: Vec<_> = (0..100u8)
        .map(|number| {
            let stack = a.clone();
            tokio::spawn(async move {
                let (mut input, mut output) = split(TcpStream::connect(&stack, server).await.unwrap());
                let sent = vec![number; 50_000];
                let mut heard = Vec::new();
                let send = async {
                    output.write_all(&sent).await.unwrap();
                    output.shutdown().await.unwrap();
                };
                tokio::join!(send, async { input.read_to_end(&mut heard).await.unwrap() });
                assert_eq!(heard, sent);
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn nobody_who_listens_is_an_error_and_a_connection_that_is_dropped_ends() {
    let (a, b, server) = stacks();
    let error = TcpStream::connect(&a, server).await.err().unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    let listener = TcpListener::bind(&b, server).unwrap();
    let (client, accepted) = tokio::join!(TcpStream::connect(&a, server), listener.accept());
    let (mut server, from) = accepted.unwrap();
    assert_eq!(from, client.as_ref().unwrap().local_addr().unwrap());
    drop(client);
    assert_eq!(server.read(&mut [0]).await.unwrap(), 0);
}
