/* A driver library that does what a script says: enough of NVML for the real pynvml of nvidia-ml-py.
 *
 * The script is the file that RL_OTEL_TEST_NVML names, read anew at each call: a line a device, with tabs between
 *
 *     uuid  name  total  used  utilization  milliwatts  errors...  wait
 *
 * sizes in bytes, wait in microseconds, and the errors of memory, utilization, power, name and UUID as NVML numbers them
 * (0 is none). A device whose UUID begins with MIG- is
 * a part of the one before it. Without a script no driver is loaded.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 32, OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, NO_DRIVER = 9, UNINITIALIZED = 1 };

typedef struct {
    char uuid[80], name[64];
    unsigned long long total, used;
    unsigned utilization, power, memory_error, utilization_error, power_error, name_error, uuid_error, wait;
} Device;

static Device devices[MOST];
static int initialized, count;
static struct { char name[48]; unsigned times; } calls[64];

static void called(const char *name) {
    for (int i = 0; i < 64; i++) {
        if (!calls[i].name[0]) snprintf(calls[i].name, sizeof calls[i].name, "%s", name);
        if (!strcmp(calls[i].name, name)) { calls[i].times++; return; }
    }
}

/* How often a function was called. */
unsigned standin_calls(const char *name) {
    for (int i = 0; i < 64; i++) if (!strcmp(calls[i].name, name)) return calls[i].times;
    return 0;
}

/* How many of those who began have not ended. */
int standin_open(void) { return initialized; }

static int load(void) {
    const char *path = getenv("RL_OTEL_TEST_NVML");
    FILE *script = path ? fopen(path, "r") : NULL;
    char line[512];
    if (!script) return NO_DRIVER;
    for (count = 0; count < MOST && fgets(line, sizeof line, script);) {
        Device d;
        memset(&d, 0, sizeof d);
        if (sscanf(line, "%79[^\t]\t%63[^\t]\t%llu\t%llu\t%u\t%u\t%u\t%u\t%u\t%u\t%u\t%u", d.uuid, d.name, &d.total, &d.used,
                   &d.utilization, &d.power, &d.memory_error, &d.utilization_error, &d.power_error, &d.name_error,
                   &d.uuid_error, &d.wait) == 12)
            devices[count++] = d;
    }
    fclose(script);
    return OK;
}

static int is_part(int i) { return !strncmp(devices[i].uuid, "MIG-", 4); }

/* A handle is the device's place, counted from 1, so that it lasts while the script changes. */
static int find(void *handle, Device **found) {
    size_t i = (size_t)handle - 1;
    if (!initialized) return UNINITIALIZED;
    int error = load();
    if (error) return error;
    if (i >= (size_t)count) return NOT_FOUND;
    *found = &devices[i];
    if ((*found)->wait) usleep((*found)->wait);
    return OK;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    called("init");
    int error = load();
    if (!error) initialized++;
    return error;
}

int nvmlShutdown(void) {
    called("shutdown");
    if (!initialized) return UNINITIALIZED;
    initialized--;
    return OK;
}

int nvmlDeviceGetCount_v2(unsigned *n) {
    called("count");
    *n = 0;
    for (int i = 0; i < count; i++) *n += !is_part(i);
    return initialized ? OK : UNINITIALIZED;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    called("handle");
    for (int i = 0; i < count; i++)
        if (!is_part(i) && !index--) { *handle = (void *)(size_t)(i + 1); return OK; }
    return INVALID;
}

int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *n) {
    Device *d;
    int error = find(handle, &d);
    if (error) return error;
    *n = is_part(d - devices) ? 0 : 7;
    return OK;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **part) {
    size_t i = (size_t)handle + index; /* the place after the whole, and on */
    for (size_t k = (size_t)handle; k <= i; k++) if (k >= (size_t)count || !is_part(k)) return NOT_FOUND;
    *part = (void *)(i + 1);
    return OK;
}

static int text(const char *from, char *to, unsigned length) {
    if (strlen(from) >= length) return INVALID;
    strcpy(to, from);
    return OK;
}

int nvmlDeviceGetUUID(void *handle, char *to, unsigned length) {
    Device *d;
    int error = find(handle, &d);
    if (error || d->uuid_error) return error ? error : (int)d->uuid_error;
    return text(d->uuid, to, length);
}

int nvmlDeviceGetName(void *handle, char *to, unsigned length) {
    Device *d;
    int error = find(handle, &d);
    if (error || d->name_error) return error ? error : (int)d->name_error;
    return text(d->name, to, length);
}

int nvmlDeviceGetMemoryInfo(void *handle, unsigned long long *memory) { /* total, free, used */
    Device *d;
    called("memory");
    int error = find(handle, &d);
    if (error || d->memory_error) return error ? error : (int)d->memory_error;
    memory[0] = d->total, memory[1] = d->total - d->used, memory[2] = d->used;
    return OK;
}

int nvmlDeviceGetUtilizationRates(void *handle, unsigned *rates) { /* gpu, memory */
    Device *d;
    called("utilization");
    int error = find(handle, &d);
    if (error || d->utilization_error) return error ? error : (int)d->utilization_error;
    rates[0] = d->utilization, rates[1] = 0;
    return OK;
}

int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) {
    Device *d;
    called("power");
    int error = find(handle, &d);
    if (error || d->power_error) return error ? error : (int)d->power_error;
    *milliwatts = d->power;
    return OK;
}

const char *nvmlErrorString(int error) {
    static char words[32];
    snprintf(words, sizeof words, "stand-in error %d", error);
    return words;
}
