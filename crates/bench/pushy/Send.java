import com.eatthepath.pushy.apns.ApnsClient;
import com.eatthepath.pushy.apns.ApnsClientBuilder;
import com.eatthepath.pushy.apns.auth.ApnsSigningKey;
import com.eatthepath.pushy.apns.util.SimpleApnsPushNotification;
import java.io.File;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.Semaphore;

/**
 * Sends one content to all device tokens in a file, by Pushy. Prints, for those behind the first ones that warm it up, the microseconds of
 * processor time that the process used for each. Who got it is in the books of the provider.
 *
 * <p>Arguments: host, port, certificate authority, signing key, file of device tokens, how many of these warm it up, connections, places.
 */
public final class Send {
    private static final String TEAM = "BELFRYTEAM";
    private static final String KEY = "BELFRYKEY1";
    private static final String TOPIC = "org.belfry.demo";
    private static final String CONTENT = "{\"aps\":{\"alert\":\"breaking news\"}}";

    private final ApnsClient client;
    private final int limit;
    private final Semaphore places;

    private Send(ApnsClient client, int limit) {
        this.client = client;
        this.limit = limit;
        this.places = new Semaphore(limit);
    }

    public static void main(String[] arguments) throws Exception {
        ApnsClient client = new ApnsClientBuilder()
            .setApnsServer(arguments[0], Integer.parseInt(arguments[1]))
            .setTrustedServerCertificateChain(new File(arguments[2]))
            .setSigningKey(ApnsSigningKey.loadFromPkcs8File(new File(arguments[3]), TEAM, KEY))
            .setConcurrentConnections(Integer.parseInt(arguments[6]))
            .build();
        List<String> tokens = Files.readAllLines(Path.of(arguments[4]));
        int first = Integer.parseInt(arguments[5]);
        Send send = new Send(client, Integer.parseInt(arguments[7]));
        send.all(tokens.subList(0, first));
        long before = processorNanos();
        send.all(tokens.subList(first, tokens.size()));
        long used = processorNanos() - before;
        client.close().get();
        System.out.println(used / 1e3 / (tokens.size() - first));
    }

    /** Returns once each has its answer. */
    private void all(List<String> tokens) throws InterruptedException {
        for (String token : tokens) {
            places.acquire();
            client.sendNotification(new SimpleApnsPushNotification(token, TOPIC, CONTENT))
                .whenComplete((response, failure) -> places.release());
        }
        places.acquire(limit);
        places.release(limit);
    }

    private static long processorNanos() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }
}
