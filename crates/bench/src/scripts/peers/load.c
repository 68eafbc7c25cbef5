// Loads a program and attaches it, until it is ended:
//
//   load OBJECT [list=FILE] PROGRAM=INTERFACE…
//
// PROGRAM is ingress, egress (tcx, Linux 6.6) or at_xdp. The file has a prefix and a number in each line, for the map `blocked`.
// What comes through the map `queries` is written to standard output.
#include <errno.h>
#include <error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <net/if.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

// Later than the headers of Debian 12.
#define TCX_INGRESS 46
#define TCX_EGRESS 47

static void fill(struct bpf_object *object, const char *path)
{
	struct { __u32 length; struct in6_addr address; } prefix;
	int map = bpf_object__find_map_fd_by_name(object, "blocked");
	char address[64];
	__u32 number;
	FILE *file = fopen(path, "r");

	if (!file)
		error(1, errno, "%s", path);
	while (fscanf(file, "%63[^/]/%u,%u\n", address, &prefix.length, &number) == 3)
		if (inet_pton(AF_INET6, address, &prefix.address) != 1 ||
		    bpf_map_update_elem(map, &prefix, &number, BPF_ANY))
			error(1, errno, "%s: %s/%u", path, address, prefix.length);
	fclose(file);
}

static void attach(struct bpf_object *object, char *name, const char *interface)
{
	struct bpf_program *program = bpf_object__find_program_by_name(object, name);
	enum bpf_attach_type type = BPF_XDP;

	if (!strcmp(name, "ingress"))
		type = (enum bpf_attach_type)TCX_INGRESS;
	else if (!strcmp(name, "egress"))
		type = (enum bpf_attach_type)TCX_EGRESS;
	if (bpf_link_create(bpf_program__fd(program), if_nametoindex(interface), type, NULL) < 0)
		error(1, errno, "%s at %s", name, interface);
}

static int tell(void *context, void *data, size_t size)
{
	struct { struct in6_addr from; __u32 length; __u8 question[260]; } *query = data;
	char from[INET6_ADDRSTRLEN], name[261] = "";
	__u32 at = 0;

	while (at < query->length && query->question[at]) {
		__u32 label = query->question[at++];

		if (label > 63 || at + label + 5 > query->length)
			return 0;
		memcpy(name + at - 1, query->question + at, label);
		at += label;
		name[at - 1] = '.';
	}
	if (at + 2 >= query->length)
		return 0;
	name[at ? at - 1 : 0] = 0;
	inet_ntop(AF_INET6, &query->from, from, sizeof(from));
	printf("%s asks for %s type %d\n", from, name, query->question[at + 1] << 8 | query->question[at + 2]);
	return 0;
}

int main(int count, char **words)
{
	struct bpf_object *object = count > 2 ? bpf_object__open(words[1]) : NULL;
	struct bpf_program *program;

	if (!object)
		error(1, errno, "usage: load OBJECT [list=FILE] PROGRAM=INTERFACE...");
	bpf_object__for_each_program(program, object)
		bpf_program__set_autoload(program, false);
	for (int i = 2; i < count; i++) {
		char *value = strchr(words[i], '=');

		if (!value)
			error(1, 0, "%s: what is it?", words[i]);
		*value = 0;
		program = bpf_object__find_program_by_name(object, words[i]);
		if (program)
			bpf_program__set_autoload(program, true);
		else if (strcmp(words[i], "list"))
			error(1, 0, "there is no program %s", words[i]);
	}
	if (bpf_object__load(object))
		error(1, errno, "%s", words[1]);
	for (int i = 2; i < count; i++) {
		char *value = words[i] + strlen(words[i]) + 1;

		if (strcmp(words[i], "list"))
			attach(object, words[i], value);
		else
			fill(object, value);
	}
	printf("attached\n");
	fflush(stdout);

	struct bpf_map *queries = bpf_object__find_map_by_name(object, "queries");
	if (!queries)
		for (;;)
			pause();
	struct ring_buffer *ring = ring_buffer__new(bpf_map__fd(queries), tell, NULL, NULL);
	while (ring && ring_buffer__poll(ring, -1) >= 0)
		fflush(stdout);
	return 1;
}
