// gVisor's netstack as a contender of `sidestep-lab bench stack`: at the TUN device and address of its arguments it
// takes at port 9000, and gives at port 9001.
package main

import (
	"io"
	"log"
	"net"
	"os"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/link/tun"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

const (
	nic    = 1
	mtu    = 1500
	sink   = 9000
	source = 9001
	chunk  = 256 << 10
	// As the others' buffers: more than any link here holds.
	buffer = 8 << 20
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: stack-gvisor DEVICE ADDRESS")
	}
	host := newHost(os.Args[1], os.Args[2])
	go serve(host, sink, func(connection net.Conn) { io.Copy(io.Discard, connection) })
	serve(host, source, func(connection net.Conn) {
		data := make([]byte, chunk)
		for {
			if _, err := connection.Write(data); err != nil {
				return
			}
		}
	})
}

func newHost(device, address string) *stack.Stack {
	descriptor, err := tun.Open(device)
	if err != nil {
		log.Fatal(err)
	}
	link, err := fdbased.New(&fdbased.Options{FDs: []int{descriptor}, MTU: mtu})
	if err != nil {
		log.Fatal(err)
	}
	host := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, icmp.NewProtocol6},
	})
	sack, cubic := tcpip.TCPSACKEnabled(true), tcpip.CongestionControlOption("cubic")
	moderate := tcpip.TCPModerateReceiveBufferOption(true)
	receive := tcpip.TCPReceiveBufferSizeRangeOption{Min: 4096, Default: 1 << 20, Max: buffer}
	send := tcpip.TCPSendBufferSizeRangeOption{Min: 4096, Default: 1 << 20, Max: buffer}
	for _, option := range []tcpip.SettableTransportProtocolOption{&sack, &cubic, &moderate, &receive, &send} {
		check(host.SetTransportProtocolOption(tcp.ProtocolNumber, option))
	}
	check(host.CreateNIC(nic, link))
	own := tcpip.ProtocolAddress{
		Protocol:          ipv6.ProtocolNumber,
		AddressWithPrefix: tcpip.AddrFromSlice(net.ParseIP(address).To16()).WithPrefix(),
	}
	check(host.AddProtocolAddress(nic, own, stack.AddressProperties{}))
	host.SetRouteTable([]tcpip.Route{{Destination: header.IPv6EmptySubnet, NIC: nic}})
	return host
}

func serve(host *stack.Stack, port uint16, each func(net.Conn)) {
	listener, err := gonet.ListenTCP(host, tcpip.FullAddress{Port: port}, ipv6.ProtocolNumber)
	if err != nil {
		log.Fatal(err)
	}
	for {
		connection, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			defer connection.Close()
			each(connection)
		}()
	}
}

func check(err tcpip.Error) {
	if err != nil {
		log.Fatal(err)
	}
}
