//! A gateway that runs, for those who are not its thread: it is started, given another configuration, and ended.

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use linux::event::Waker;

use super::error::Error;
use super::router::{Command, Router, TunnelBeside};
use config::RouterConfig;
use config::run::RunOptions;
use control::{Call, Request, Server};

/// A gateway that runs. It ends when this is dropped.
pub struct RouterThread {
    handle: RouterHandle,
    thread: Option<JoinHandle<()>>,
    _server: Server,
}

/// What gives a gateway that runs another configuration.
#[derive(Clone)]
pub struct RouterHandle {
    commands: Sender<Command>,
    waker: Waker,
}

impl RouterThread {
    /// Sets the gateway up, all of it or nothing, and keeps it.
    ///
    /// `tunnel` is a tunnel in the same configuration. Without one, who asks for the configuration to
    /// be read again is handed to `reload`, on the control socket's thread.
    pub fn start(
        options: &RunOptions,
        gateway: RouterConfig,
        tunnel: Option<TunnelBeside>,
        reload: impl Fn(Call) + Send + 'static,
    ) -> Result<Self, Error> {
        let (commands, received) = channel();
        let waker = Waker::new()?;
        // With a tunnel the path that was given is that of its socket.
        let given = options.socket.clone().filter(|_| tunnel.is_none());
        let socket = given.map_or_else(control::socket_of_gateway, Ok)?;
        let name = options.file.file_stem().unwrap_or_default().to_string_lossy();
        let state = options.state_dir.join(format!("{name}-gateway.json"));
        let server = {
            let (commands, waker, standalone) = (commands.clone(), waker.clone(), tunnel.is_none());
            Server::start(&socket, move |call: Call| match call.request {
                Request::Reload { .. } | Request::Confirm if standalone => reload(call),
                _ => {
                    let _ = commands.send(Command::Call(call));
                    waker.wake();
                }
            })?
        };
        let (ready, is_ready) = channel();
        let (own_waker, journal, file) =
            (waker.clone(), socket.with_extension("journal"), options.file.clone());
        let run = move || {
            match Router::set_up(gateway, &journal, state, tunnel, &own_waker) {
                Ok(mut router) => {
                    router.file = file;
                    let _ = ready.send(Ok(()));
                    router.run(&own_waker, &received);
                    router.end();
                }
                Err(error) => drop(ready.send(Err(error))),
            };
        };
        let thread = std::thread::Builder::new().name("gateway".into()).spawn(run)?;
        is_ready.recv().map_err(|_| Error::Ended)??;
        Ok(RouterThread { handle: RouterHandle { commands, waker }, thread: Some(thread), _server: server })
    }

    /// What gives it another configuration.
    pub fn handle(&self) -> RouterHandle {
        self.handle.clone()
    }
}

impl RouterHandle {
    /// Another configuration in the place of the one that is in force, which is returned; or that stays, where the other
    /// cannot be.
    pub fn reload(&self, gateway: Box<RouterConfig>) -> Result<Box<RouterConfig>, Error> {
        let (answer, result) = channel();
        self.send(Command::Reload(gateway, answer));
        result.recv().unwrap_or(Err(Error::Ended))
    }

    fn send(&self, command: Command) {
        // It ends only at its command, or has said why.
        let _ = self.commands.send(command);
        self.waker.wake();
    }
}

impl Drop for RouterThread {
    fn drop(&mut self) {
        self.handle.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
