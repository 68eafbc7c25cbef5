//! A server on a TAP device, a task for each of its clients: what comes in goes out again.
//!
//! ```sh
//! sudo ip tuntap add dev tap0 mode tap user $USER
//! sudo ip link set dev tap0 up
//! cargo run -p stack-tokio --example echo_server -- tap0
//! ```

use std::error::Error;
use std::time::Duration;

use linux::tun::Kind;
use stack_runtime::device::kernel;
use stack_runtime::{Options, Stack};
use stack_tokio::{TcpListener, TcpStream};
use tokio::io::{copy, split};
use wire::ethernet::MacAddress;

const ECHO: u16 = 7;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).ok_or("give the name of a TAP device")?;
    let device = kernel::open(&name, Kind::Ethernet, MacAddress([2, 0, 0, 0, 0, 7]))?;
    let stack = Stack::start(device, Options::new(name.as_str()))?;
    let address = stack.wait_for_address(Duration::from_secs(10))?;
    println!("nc {address}%{name} {ECHO}");
    let listener = TcpListener::bind(&stack, format!("[::]:{ECHO}").parse()?)?;
    loop {
        let (client, from) = listener.accept().await?;
        tokio::spawn(async move {
            if let Err(error) = serve(client).await {
                eprintln!("{from}: {error}");
            }
        });
    }
}

async fn serve(client: TcpStream) -> std::io::Result<()> {
    let (mut input, mut output) = split(client);
    copy(&mut input, &mut output).await?;
    input.unsplit(output).finish().await
}
