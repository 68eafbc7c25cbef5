//! A host on a TAP device, without the kernel's network, and without privileges where the device is ours:
//!
//! ```sh
//! sudo ip tuntap add dev tap0 mode tap user $USER
//! sudo ip link set dev tap0 up
//! cargo run -p stack-runtime --example echo -- tap0
//! ```
//!
//! It has the address that it prints, repeats whatever is sent to its port 7, and lasts until it is interrupted.

use std::error::Error;
use std::io::{Read, Write};
use std::time::Duration;

use linux::tun::Kind;
use stack_runtime::device::kernel;
use stack_runtime::{Options, Stack, TcpListener, TcpStream};
use wire::ethernet::MacAddress;

fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).ok_or("which device? cargo run --example echo -- tap0")?;
    let device = kernel::open(&name, Kind::Ethernet, MacAddress([2, 0, 0, 0, 0, 7]))?;
    let stack = Stack::start(device, Options::new(name.as_str()))?;
    let address = stack.wait_for_address(Duration::from_secs(10))?;
    println!("nc {address}%{name} 7");

    let listener = TcpListener::bind(&stack, "[::]:7".parse()?)?;
    loop {
        let (stream, from) = listener.accept()?;
        println!("{from}");
        std::thread::spawn(move || {
            if let Err(error) = repeat(&stream) {
                eprintln!("{from}: {error}");
            }
        });
    }
}

fn repeat(mut stream: &TcpStream) -> std::io::Result<()> {
    let mut data = [0; 65_536];
    loop {
        match stream.read(&mut data)? {
            0 => return stream.finish(Duration::from_secs(10)),
            length => stream.write_all(&data[..length])?,
        }
    }
}
